"""Releases of the chart that share a namespace leave each other's pods alone."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.k8s.charts import CHART, rendered
from tests.k8s.rendering import OVERLAYS, PROJECT, Manifest, name_of
from tests.k8s.validation import problems
from tests.k8s.workloads import chosen_by, of_kind, pods, selects

STANDALONE, SIDECAR = (f"config={OVERLAYS[name] / 'config.yaml'}" for name in ("standalone", "native-sidecar"))
MONITORED = ("--set", "monitor.enabled=true")


def standalone(release: str, _: Path) -> list[Manifest]:
    return rendered(CHART, "--set-file", STANDALONE, *MONITORED, release=release)


def sidecar(release: str, application: Path) -> list[Manifest]:
    options = ["--set-file", f"nats-bridge.{SIDECAR}", "--set", "nats-bridge.fullnameOverride="]
    return rendered(application, *options, release=release)


def alone(release: str, application: Path) -> list[Manifest]:
    """A standalone bridge that an application's chart brings, next to pods without a sidecar."""
    options = ["--set-file", f"nats-bridge.{STANDALONE}", "--set", "nats-bridge.mode=standalone"]
    found = rendered(application, *options, "--set", "nats-bridge.fullnameOverride=", release=release)
    return [each for each in found if each["metadata"]["name"] != release]


RELEASES: dict[str, Callable[[str, Path], list[Manifest]]] = {
    "nats-bridge": standalone,
    "west": standalone,
    "west-nats-bridge-2": standalone,
    "orders": sidecar,
    "invoices": sidecar,
    "nats-bridge-orders": sidecar,
    "payments": alone,
}


@pytest.fixture
def releases(application: Path) -> dict[str, list[Manifest]]:
    """What each release makes in the namespace."""
    return {name: make(name, application) for name, make in RELEASES.items()}


def test_no_object_chooses_what_another_release_made(releases: dict[str, list[Manifest]]) -> None:
    seen = 0
    for (name, here), (other, there) in itertools.product(releases.items(), repeat=2):
        (pod,) = pods(there)
        services = [service["metadata"]["labels"] for service in of_kind(there, "Service")]
        for manifest in here:
            chosen = services if manifest["kind"] == "ServiceMonitor" else [pod.labels]
            for selector in chosen_by(manifest):
                found = [selects(selector, labels) for labels in chosen]
                seen += len(found)
                assert found in ([], [name == other]), (name_of(manifest), name, other)
    assert seen > 100


def test_objects_of_releases_have_names_of_their_own(releases: dict[str, list[Manifest]]) -> None:
    for here, there in itertools.combinations(releases.values(), 2):
        ours, theirs = ({name_of(each) for each in made} for made in (here, there))
        assert not ours & theirs


def test_two_bridges_of_one_release_choose_different_pods(tmp_path: Path, application: Path) -> None:
    chart = application / "Chart.yaml"
    twice = "\n".join(
        f'  - {{name: nats-bridge, alias: {alias}, version: ">=0.1.0", repository: "file://../x"}}'
        for alias in ("east", "west")
    )
    head = chart.read_text("utf-8").partition("dependencies:")[0]
    chart.write_text(f"{head}dependencies:\n{twice}\n", "utf-8")
    (application / "templates/deployment.yaml").unlink()
    (application / "values.yaml").write_text("", "utf-8")
    options = [word for alias in ("east", "west") for word in ("--set-file", f"{alias}.{STANDALONE}")]
    made = rendered(application, *options, release="links")
    both = pods(made)
    assert len({name_of(each) for each in made}) == len(made)
    for manifest in (each for each in made if each["kind"] != "ServiceMonitor"):
        for selector in chosen_by(manifest):
            assert [selects(selector, pod.labels) for pod in both].count(True) == 1, name_of(manifest)


@pytest.mark.parametrize("mode", ["standalone", "sidecar"])
@pytest.mark.parametrize(
    ("name", "release", "job"),
    [
        ("", "west", "west-nats-bridge"),
        ("", f"{'x' * 52}", f"{'x' * 52}-nats-bridg-nats-bridge"),
        ("west", "nats-bridge", "west-nats-bridge"),
        ("nats-bridge-west", "x", "nats-bridge-west"),
    ],
)
def test_the_alerts_select_the_job_of_a_release_of_any_name(
    name: str, release: str, job: str, mode: str, application: Path
) -> None:
    if mode == "standalone":
        values = ["--set-file", STANDALONE, "--set", f"monitor.enabled=true,fullnameOverride={name}"]
        made = rendered(CHART, *values, release=release)
        (service,) = of_kind(made, "Service")
        default = service["metadata"]["name"]
    else:
        values = ["--set-file", f"nats-bridge.{SIDECAR}"]
        values += ["--set", f"nats-bridge.monitor.enabled=true,nats-bridge.fullnameOverride={name}"]
        made = rendered(application, *values, release=release)
        (monitor,) = of_kind(made, "PodMonitor")
        default = monitor["metadata"]["name"]
    (monitor,) = [each for each in made if each["kind"] in ("ServiceMonitor", "PodMonitor")]
    assert problems(monitor, "1.29") == []
    (endpoint,) = monitor["spec"].get("endpoints") or monitor["spec"]["podMetricsEndpoints"]
    (relabeling,) = endpoint.get("relabelings") or [{"targetLabel": "job", "replacement": default}]
    assert relabeling == {"targetLabel": "job", "replacement": job}
    alerts = (PROJECT / "k8s/monitoring/alerts.yaml").read_text("utf-8")
    selectors = set(re.findall(r'job=~"([^"]+)"', alerts))
    assert selectors
    assert all(re.fullmatch(selector, job) for selector in selectors)
