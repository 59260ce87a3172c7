"""Each value of the chart arrives where it should, and a value that is misspelt or in the wrong place is an error."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.k8s.charts import CHART, helm, rendered
from tests.k8s.rendering import OVERLAYS, Manifest, name_of
from tests.k8s.validation import problems
from tests.k8s.workloads import Pod, chosen_by, of_kind, pods, selects

CONTAINER: dict[str, Any] = {
    "extraEnv": [
        {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://otel:4318"},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "west", "key": "token"}}},
    ],
    "envFrom": [{"prefix": "BRIDGE_", "configMapRef": {"name": "west", "optional": True}}],
    "extraVolumes": [{"name": "authority", "configMap": {"name": "authority"}}],
    "extraVolumeMounts": [{"name": "authority", "mountPath": "/etc/authority", "readOnly": True}],
    "resources": {"limits": {"cpu": "2"}},
    "securityContext": {"runAsUser": None, "runAsGroup": None, "seLinuxOptions": {"level": "s0"}},
    "startupProbe": {"failureThreshold": 600},
    "livenessProbe": {"initialDelaySeconds": 3},
    "readinessProbe": {"enabled": False},
}
"""Values of the container, standalone and as a sidecar."""

POD: dict[str, Any] = {
    "podLabels": {"team": "orders"},
    "podAnnotations": {"sidecar.istio.io/inject": "false"},
    "imagePullSecrets": [{"name": "registry"}],
    "podSecurityContext": {"fsGroup": 65532, "fsGroupChangePolicy": "OnRootMismatch"},
    "priorityClassName": "high",
    "nodeSelector": {"kubernetes.io/arch": "arm64"},
    "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}},
    "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "nats", "effect": "NoSchedule"}],
    "topologySpreadConstraints": [
        {"maxSkew": 2, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"},
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"team": "orders"}},
        },
    ],
    "terminationGracePeriodSeconds": 90,
    "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "50%", "maxUnavailable": 1}},
    "serviceAccount": {"create": True, "annotations": {"eks.amazonaws.com/role-arn": "arn"}, "automount": True},
    "pod": {"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["nats"]}], "runtimeClassName": "gvisor"},
}
"""Values of the standalone pods."""

EVERYTHING = {**CONTAINER, **POD}


def values(given: Mapping[str, Any], folder: Path, *, under: str = "") -> list[str | Path]:
    """Options of Helm for these values, and a configuration."""
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump({under: dict(given)} if under else dict(given)), "utf-8")
    config = OVERLAYS["native-sidecar" if under else "standalone"] / "config.yaml"
    return ["--values", file, "--set-file", f"{under}.config={config}".removeprefix(".")]


def standalone(given: Mapping[str, Any], folder: Path, release: str = "west") -> list[Manifest]:
    made = rendered(CHART, *values(given, folder), release=release)
    assert {name_of(each): problems(each, "1.29") for each in made if problems(each, "1.29")} == {}
    return made


def pod_of(given: Mapping[str, Any], folder: Path) -> Pod:
    (pod,) = pods(standalone(given, folder))
    return pod


def refusal(given: Mapping[str, Any], folder: Path) -> str:
    """Why Helm renders nothing."""
    done = helm("template", "x", CHART, "--kube-version", "1.29", *values(given, folder))
    assert done.returncode == 1, done.stdout
    return done.stderr


def as_in_the_container(container: dict[str, Any], volumes: list[dict[str, Any]]) -> None:
    """Everything of CONTAINER is there, next to what the chart puts there."""
    assert container["env"][-2:] == CONTAINER["extraEnv"]
    assert container["env"][0]["name"] == "BRIDGE_HTTP__LISTEN"
    assert container["envFrom"] == CONTAINER["envFrom"]
    assert container["volumeMounts"][2:] == CONTAINER["extraVolumeMounts"]
    assert volumes[2:] == CONTAINER["extraVolumes"]
    assert container["resources"]["limits"] == {"cpu": "2", "memory": "512Mi"}
    # Whatever is not said stays as strict as it was; what is null is the cluster's to choose.
    assert container["securityContext"] == {
        "runAsNonRoot": True,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
        "seLinuxOptions": {"level": "s0"},
    }
    assert container["startupProbe"]["failureThreshold"] == 600
    assert container["livenessProbe"] == {
        "httpGet": {"path": "/livez", "port": "bridge-http"},
        "initialDelaySeconds": 3,
        "periodSeconds": 10,
        "timeoutSeconds": 5,
        "failureThreshold": 3,
    }
    assert "readinessProbe" not in container


def test_values_of_the_container_arrive_in_it(tmp_path: Path) -> None:
    pod = pod_of(CONTAINER, tmp_path)
    as_in_the_container(pod.bridge, pod.spec["volumes"])


def test_values_of_the_container_arrive_in_a_sidecar(tmp_path: Path, application: Path) -> None:
    (pod,) = pods(rendered(application, *values(CONTAINER, tmp_path, under="nats-bridge")))
    assert problems(pod.workload, "1.29") == []
    as_in_the_container(pod.bridge, pod.spec["volumes"])
    assert pod.bridge["restartPolicy"] == "Always"


def test_values_of_the_pods_arrive_in_them(tmp_path: Path) -> None:
    made = standalone(POD, tmp_path)
    (pod,) = pods(made)
    metadata = pod.workload["spec"]["template"]["metadata"]
    own = {"app.kubernetes.io/name": "nats-bridge", "app.kubernetes.io/instance": "west"}
    assert metadata == {
        "labels": {**own, "nats-bridge": "standalone", "team": "orders"},
        "annotations": POD["podAnnotations"],
    }
    assert pod.workload["spec"]["selector"] == {"matchLabels": own}
    assert pod.workload["spec"]["strategy"] == POD["updateStrategy"]
    named = ("imagePullSecrets", "priorityClassName", "nodeSelector", "affinity", "tolerations")
    assert {key: pod.spec[key] for key in named} == {key: POD[key] for key in named}
    assert pod.spec["securityContext"] == POD["podSecurityContext"]
    assert pod.spec["terminationGracePeriodSeconds"] == 90
    first, second = POD["topologySpreadConstraints"]
    assert pod.spec["topologySpreadConstraints"] == [{**first, "labelSelector": {"matchLabels": own}}, second]
    assert {key: pod.spec[key] for key in POD["pod"]} == POD["pod"]


def test_a_service_account_is_made_and_used(tmp_path: Path) -> None:
    made = standalone(POD, tmp_path)
    (account,) = of_kind(made, "ServiceAccount")
    (pod,) = pods(made)
    assert pod.spec["serviceAccountName"] == account["metadata"]["name"] == "west-nats-bridge"
    assert account["metadata"]["annotations"] == POD["serviceAccount"]["annotations"]
    assert account["automountServiceAccountToken"] is pod.spec["automountServiceAccountToken"] is True


@pytest.mark.parametrize("create", [True, False])
def test_a_service_account_can_have_a_name(create: bool, tmp_path: Path) -> None:
    made = standalone({"serviceAccount": {"create": create, "name": "bridges"}}, tmp_path)
    (pod,) = pods(made)
    assert pod.spec["serviceAccountName"] == "bridges"
    assert [each["metadata"]["name"] for each in of_kind(made, "ServiceAccount")] == ["bridges"] * create
    assert pod.spec["automountServiceAccountToken"] is False


def test_the_schema_knows_the_values_and_no_others() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    listed = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    assert set(schema["properties"]) == {*listed, "global"}
    assert set(EVERYTHING) <= set(listed)


def test_by_default_pods_have_the_namespace_account_without_its_token(tmp_path: Path) -> None:
    made = standalone({}, tmp_path)
    (pod,) = pods(made)
    assert not of_kind(made, "ServiceAccount")
    assert "serviceAccountName" not in pod.spec
    assert pod.spec["automountServiceAccountToken"] is False


def test_all_values_together_are_valid_and_pass_helms_own_check(tmp_path: Path) -> None:
    (pod,) = pods(standalone(EVERYTHING, tmp_path))
    assert problems(pod.workload, "1.25") == problems(pod.workload, "1.37") == []
    done = helm("lint", "--strict", CHART, *values(EVERYTHING, tmp_path))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("probe", ["startupProbe", "livenessProbe", "readinessProbe"])
@pytest.mark.parametrize("off", [{"enabled": False}, None])
def test_each_probe_can_be_off(probe: str, off: dict[str, bool] | None, tmp_path: Path) -> None:
    bridge = pod_of({probe: off}, tmp_path).bridge
    assert {key for key in bridge if key.endswith("Probe")} == {"startupProbe", "livenessProbe", "readinessProbe"} - {
        probe
    }


def test_a_job_checks_the_new_configuration_with_the_files_of_the_pods(tmp_path: Path) -> None:
    made = standalone({**EVERYTHING, "check": {"enabled": True}}, tmp_path)
    (job,) = of_kind(made, "Job")
    config = next(each for each in of_kind(made, "ConfigMap") if each["metadata"]["name"] == "west-nats-bridge-check")
    (pod,) = pods(made)
    hooks = [each["metadata"]["annotations"] for each in (config, job)]
    assert {hook["helm.sh/hook"] for hook in hooks} == {"pre-install,pre-upgrade"}
    assert int(hooks[0]["helm.sh/hook-weight"]) < 0, "the configuration is there first"
    assert config["data"] == of_kind(made, "ConfigMap")[0]["data"]
    spec = job["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["args"] == ["check", *pod.bridge["args"][1:], "--server", "config"]
    same = {"env", "envFrom", "image", "securityContext", "volumeMounts"}
    assert {key: container[key] for key in same} == {key: pod.bridge[key] for key in same}
    assert spec["volumes"][0]["configMap"] == {"name": config["metadata"]["name"]}
    assert spec["volumes"][1:] == pod.spec["volumes"][1:]
    assert [spec[key] for key in ("imagePullSecrets", "tolerations")] == [
        pod.spec[key] for key in ("imagePullSecrets", "tolerations")
    ]
    assert "serviceAccountName" not in spec, "the account is made later"
    labels = job["spec"]["template"]["metadata"]["labels"]
    for kind in ("NetworkPolicy", "PodDisruptionBudget", "Service"):
        for manifest in of_kind(made, kind):
            assert not any(selects(selector, labels) for selector in chosen_by(manifest)), kind


def test_readiness_can_depend_on_all_connections(tmp_path: Path) -> None:
    bridge = pod_of({"readinessProbe": {"path": "/readyz"}}, tmp_path).bridge
    assert bridge["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_pods_need_not_be_spread(tmp_path: Path) -> None:
    assert "topologySpreadConstraints" not in pod_of({"topologySpreadConstraints": []}, tmp_path).spec


@pytest.mark.parametrize(
    "place",
    [
        (),
        ("image",),
        ("leadership",),
        ("extraEnv", 0),
        ("envFrom", 0),
        ("envFrom", 0, "configMapRef"),
        ("extraVolumeMounts", 0),
        ("resources",),
        ("securityContext",),
        ("startupProbe",),
        ("livenessProbe",),
        ("readinessProbe",),
        ("imagePullSecrets", 0),
        ("podSecurityContext",),
        ("affinity",),
        ("tolerations", 0),
        ("topologySpreadConstraints", 0),
        ("updateStrategy",),
        ("updateStrategy", "rollingUpdate"),
        ("serviceAccount",),
        ("pod",),
        ("podDisruptionBudget",),
        ("monitor",),
        ("networkPolicy",),
    ],
    ids=lambda place: ".".join(map(str, place)) or "top",
)
def test_a_misspelt_value_is_an_error(place: tuple[str | int, ...], tmp_path: Path) -> None:
    given = copy.deepcopy(EVERYTHING)
    found: Any = given
    for part in place:
        found = found.setdefault(part, {}) if isinstance(part, str) else found[part]
    found["misspelt"] = "x"
    assert "misspelt" in refusal(given, tmp_path)


@pytest.mark.parametrize(
    "given",
    [
        {"extraEnv": [{"name": "PORT", "value": 4222}]},  # the cluster refuses a number
        {"extraEnv": {"name": "PORT"}},
        {"extraVolumes": [{"name": "nats-bridge-config", "emptyDir": {}}]},
        {"extraVolumeMounts": [{"name": "x", "mountPath": "/etc/nats-bridge"}]},
        {"podLabels": {"app.kubernetes.io/instance": "east"}},  # the selector's
        {"podAnnotations": {"prometheus.io/scrape": True}},
        {"pod": {"nodeSelector": {"zone": "a"}}},  # the chart has a value for it
        {"pod": {"volumes": []}},
        {"terminationGracePeriodSeconds": "60"},
        {"readinessProbe": False},
        {"tolerations": [{"effect": "NoSchedul"}]},
        {"updateStrategy": {"type": "OnDelete"}},
        {"networkPolicy": {"egress": [{"from": []}]}},
        {"networkPolicy": {"extraEgress": [{"from": []}]}},
        {"readinessProbe": {"path": "readyz"}},
        {"env": []},
    ],
    ids=lambda given: str(given)[:50],
)
def test_a_value_of_the_wrong_kind_is_an_error(given: dict[str, Any], tmp_path: Path) -> None:
    assert "meet the specifications of the schema" in refusal(given, tmp_path)


@pytest.mark.parametrize("key", sorted(set(POD) - {"topologySpreadConstraints", "terminationGracePeriodSeconds"}))
def test_a_sidecar_takes_no_values_of_the_pods(key: str, tmp_path: Path, application: Path) -> None:
    given = values({key: POD[key]}, tmp_path, under="nats-bridge")
    done = helm("template", "x", application, "--kube-version", "1.29", *given)
    assert done.returncode == 1
    assert f"{key} is for mode: standalone; a sidecar's pods are those of the application" in done.stderr
