"""The Helm chart gives the objects of the overlays, valid ones, and refuses values that it does not know."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.k8s.charts import CHART, helm, rendered
from tests.k8s.rendering import OVERLAYS, PROJECT, Manifest, monitored, name_of
from tests.k8s.validation import CLUSTERS, problems
from tests.k8s.workloads import of_kind, pods

CONFIG = ("--set-file", f"config={OVERLAYS['standalone'] / 'config.yaml'}")
OF_HELM = {"app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "helm.sh/chart"}
"""Labels that say which release an object belongs to."""


def plain(value: Any) -> Any:
    """A manifest without what only one of the two ways gives it: the release's labels, the overlay's namespace."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items() if key not in OF_HELM and key != "namespace"}
    return [plain(part) for part in value] if isinstance(value, list) else value


def by_name(manifests: list[Manifest] | tuple[Manifest, ...]) -> dict[str, Any]:
    found = {name_of(manifest): plain(manifest) for manifest in manifests if manifest["kind"] != "Namespace"}
    for manifest in found.values():
        if manifest["kind"] == "ConfigMap":
            manifest["metadata"].pop("labels", None)
    return found


@pytest.fixture
def application(tmp_path: Path) -> Path:
    """A chart with the bridge's as its dependency."""
    chart = tmp_path / "orders"
    shutil.copytree(PROJECT / "tests/k8s/app-chart", chart)
    shutil.copytree(CHART, chart / "charts/nats-bridge")
    return chart


def in_application(chart: Path, overlay: str, *options: str) -> list[Manifest]:
    config = f"nats-bridge.config={OVERLAYS[overlay] / 'config.yaml'}"
    return rendered(chart, "--set-file", config, *options, release="orders")


def test_helm_finds_nothing_wrong(application: Path) -> None:
    for chart in (CHART, application):
        done = helm("lint", "--strict", chart)
        assert done.returncode == 0, done.stdout
        assert "0 chart(s) failed" in done.stdout


def test_standalone_is_the_overlay() -> None:
    chart = rendered(CHART, *CONFIG, "--set", "monitor.enabled=true")
    assert by_name(chart) == by_name(monitored(OVERLAYS["standalone"]))


@pytest.mark.parametrize("overlay", ["native-sidecar", "classic-sidecar"])
def test_a_sidecar_is_that_of_the_overlay(overlay: str, application: Path) -> None:
    chart = in_application(application, overlay, *(["--set", "classic=true"] if overlay == "classic-sidecar" else []))
    kustomized = monitored(OVERLAYS[overlay])
    (there,), (here,) = pods(kustomized), pods(chart)
    assert here.bridge == there.bridge
    (place,) = ["initContainers" if "initContainers" in there.spec else "containers"]
    assert here.bridge in here.spec[place]
    assert [each for each in there.spec["volumes"] if each not in here.spec["volumes"]] == [
        each for each in there.spec["volumes"] if each["name"] == "app"
    ]
    ours = {name: each for name, each in by_name(chart).items() if each["kind"] != "Deployment"}
    assert set(ours) == {"ConfigMap/nats-bridge", "NetworkPolicy/nats-bridge", "PodMonitor/nats-bridge"}
    assert ours.items() <= by_name(kustomized).items()


@pytest.mark.parametrize("overlay", list(OVERLAYS))
def test_what_it_gives_is_valid(overlay: str, application: Path) -> None:
    if overlay == "standalone":
        chart = rendered(CHART, *CONFIG, "--set", "monitor.enabled=true")
    else:
        chart = in_application(application, overlay, *(["--set", "classic=true"] if "classic" in overlay else []))
    found = {(name_of(each), cluster): problems(each, cluster) for each in chart for cluster in CLUSTERS[overlay]}
    assert {place: lines for place, lines in found.items() if lines} == {}


def test_values_reach_the_objects() -> None:
    options = ["image.tag=9.9.9", "image.pullPolicy=Always", "credentialsSecret=west", "pod.priorityClassName=high"]
    options += ["env[0].name=OTEL_EXPORTER_OTLP_ENDPOINT", "env[0].value=http://otel:4318", "replicas=3"]
    options += ["monitor.enabled=true", "monitor.labels.release=kps", "podDisruptionBudget.enabled=false"]
    options += ["networkPolicy.enabled=false"]
    chart = rendered(CHART, *CONFIG, "--set", ",".join(options), release="west")
    (pod,) = pods(chart)
    assert {each["metadata"]["name"] for each in chart} == {"west-nats-bridge"}
    assert pod.bridge["image"].endswith("/nats-bridge:9.9.9")
    assert pod.bridge["imagePullPolicy"] == "Always"
    assert pod.bridge["env"][-1] == {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://otel:4318"}
    assert pod.spec["priorityClassName"] == "high"
    assert pod.spec["volumes"][1]["secret"]["secretName"] == "west"
    assert pod.workload["spec"]["replicas"] == 3
    assert of_kind(chart, "ServiceMonitor")[0]["metadata"]["labels"]["release"] == "kps"
    assert not of_kind(chart, "PodDisruptionBudget") + of_kind(chart, "NetworkPolicy")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("replica=3", "additional properties 'replica' not allowed"),
        ("mode=daemonset", "value must be one of 'standalone', 'sidecar'"),
        ("monitor.interval=soon", "does not match pattern"),
        ("pod.containers=x", "'not' failed"),
    ],
)
def test_the_schema_refuses_a_mistake(value: str, said: str) -> None:
    done = helm("template", "x", CHART, "--kube-version", "1.29", *CONFIG, "--set", value)
    assert done.returncode == 1
    assert said in done.stderr


def test_a_configuration_is_needed() -> None:
    done = helm("template", "x", CHART, "--kube-version", "1.29")
    assert "config is empty: --set-file config=bridge.yaml" in done.stderr
