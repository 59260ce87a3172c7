"""The Helm chart gives the objects of the overlays, valid ones, and refuses values that it does not know."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.k8s.charts import CHART, helm, rendered
from tests.k8s.rendering import OVERLAYS, Manifest, monitored, name_of
from tests.k8s.validation import CLUSTERS, problems
from tests.k8s.workloads import of_kind, pods

CONFIG = ("--set-file", f"config={OVERLAYS['standalone'] / 'config.yaml'}")
CREDENTIALS = "credentialsSecret=west,extraEnv[0].name=A,extraEnv[0].valueFrom.secretKeyRef.name=west,"
CREDENTIALS += "extraEnv[0].valueFrom.secretKeyRef.key=a"
CHOICES = {
    "standalone": "",
    "standalone with a monitor": "monitor.enabled=true,monitor.interval=30s,monitor.labels.release=kps",
    "standalone with five replicas": "replicas=5,podDisruptionBudget.maxUnavailable=40%",
    "standalone with one replica": "replicas=1,podDisruptionBudget.enabled=false",
    "standalone with secrets": f"{CREDENTIALS},imagePullSecrets[0].name=registry",
    "standalone elsewhere": "fullnameOverride=west,nodeSelector.zone=a,tolerations[0].operator=Exists",
    "standalone with a second cluster": "networkPolicy.extraEgress[0].to[0].ipBlock.cidr=10.8.0.0/16",
    "standalone without a policy": "networkPolicy.enabled=false",
    "standalone with a check": "check.enabled=true,serviceAccount.create=true",
    "native-sidecar": "",
    "native-sidecar with a check": "check.enabled=true",
    "native-sidecar without a monitor": "monitor.enabled=false",
    "native-sidecar with secrets": CREDENTIALS,
    "native-sidecar with a port of the application": "networkPolicy.ingress[0].ports[0].port=8080",
    "classic-sidecar": "",
    "classic-sidecar with secrets": CREDENTIALS,
}
"""Values that people choose, by the overlay next to which they are chosen and why."""
OF_HELM = {"app.kubernetes.io/instance", "nats-bridge/instance", "app.kubernetes.io/managed-by", "helm.sh/chart"}
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


def clusters(choice: str) -> tuple[str, ...]:
    """The versions of Kubernetes that the overlay of a choice is for."""
    return CLUSTERS[choice.split()[0]]


def chosen(choice: str, application: Path) -> list[str | Path]:
    """The chart that has the values, and options that set them."""
    overlay, values = choice.split()[0], CHOICES[choice]
    chart, prefix = (CHART, "") if overlay == "standalone" else (application, "nats-bridge.")
    options = ["--set-file", f"{prefix}config={OVERLAYS[overlay] / 'config.yaml'}"]
    options += ["--set", f"classic={overlay == 'classic-sidecar'}".lower()] if prefix else []
    return [chart, *options, *(word for value in values.split(",") if value for word in ("--set", f"{prefix}{value}"))]


def in_application(chart: Path, overlay: str, *options: str) -> list[Manifest]:
    config = f"nats-bridge.config={OVERLAYS[overlay] / 'config.yaml'}"
    return rendered(chart, "--set-file", config, *options, release="orders")


@pytest.mark.parametrize("choice", CHOICES)
def test_helm_finds_nothing_wrong(choice: str, application: Path) -> None:
    done = helm("lint", "--strict", *chosen(choice, application))
    assert done.returncode == 0, done.stdout
    assert "0 chart(s) failed" in done.stdout


@pytest.mark.parametrize(("choice", "cluster"), [(choice, each) for choice in CHOICES for each in clusters(choice)])
def test_what_it_gives_is_valid(choice: str, cluster: str, application: Path) -> None:
    found = {name_of(each): problems(each, cluster) for each in rendered(*chosen(choice, application), cluster=cluster)}
    assert found
    assert {name: lines for name, lines in found.items() if lines} == {}


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


def test_values_reach_the_objects() -> None:
    options = ["image.tag=9.9.9", "image.pullPolicy=Always", "credentialsSecret=west", "priorityClassName=high"]
    options += ["extraEnv[0].name=OTEL_EXPORTER_OTLP_ENDPOINT", "extraEnv[0].value=http://otel:4318", "replicas=3"]
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
        # Releases of Helm word it in different ways.
        ("replica=3", "additional propert(y|ies) '?replica'? (is )?not allowed"),
        ("mode=daemonset", "mode.* must be one of .*standalone.*sidecar"),
        ("monitor.interval=soon", "interval.* does not match pattern"),
        ("pod.containers=x", "pod.* (Property name of .containers. does not match|invalid propertyName 'containers')"),
    ],
)
def test_the_schema_refuses_a_mistake(value: str, said: str) -> None:
    done = helm("template", "x", CHART, "--kube-version", "1.29", *CONFIG, "--set", value)
    assert done.returncode == 1
    assert re.search(said, done.stderr, re.IGNORECASE), done.stderr


def test_a_configuration_is_needed() -> None:
    done = helm("template", "x", CHART, "--kube-version", "1.29")
    assert "config is empty: --set-file config=bridge.yaml" in done.stderr
