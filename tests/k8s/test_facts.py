"""Ports, paths, names and numbers of the manifests are those that the program and its image really have."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from nats_bridge.client.waiting import CLOSING
from nats_bridge.rules import open_run
from nats_bridge.settings import Settings, load
from nats_bridge.settings.environment import SECRETS_DIR_VARIABLE
from nats_bridge.settings.environment import overlay as settings_overlay
from tests.k8s.rendering import OVERLAYS, PROJECT, Manifest, monitored, render
from tests.k8s.workloads import Pod, of_image, of_kind, pods, selects

SECURITY = {
    "runAsNonRoot": True,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def variables(pod: Pod) -> dict[str, str]:
    return {entry["name"]: entry.get("value", "") for entry in pod.bridge.get("env", [])}


def volume(pod: Pod, mount: str) -> dict[str, object]:
    (name,) = (entry["name"] for entry in pod.bridge["volumeMounts"] if entry["mountPath"] == mount)
    (found,) = (entry for entry in pod.spec["volumes"] if entry["name"] == name)
    return dict(found)


def settings_of(manifests: tuple[Manifest, ...], folder: Path) -> Settings:
    (pod,) = pods(manifests)
    (config,) = (each for each in of_kind(manifests, "ConfigMap") if each["metadata"]["name"] == "nats-bridge")
    file = folder / "config.yaml"
    file.write_text(config["data"]["config.yaml"], "utf-8")
    return load(file, variables(pod))


def test_the_container_runs_the_image_command_on_the_mounted_file(manifests: tuple[Manifest, ...]) -> None:
    (pod,) = pods(manifests)
    assert "command" not in pod.bridge  # the image's entry point
    assert pod.bridge["args"] == json.loads(of_image("CMD"))
    *_, option, path = pod.bridge["args"]
    assert option == "-c"
    folder, _, key = path.rpartition("/")
    source = volume(pod, folder)["configMap"]
    (config,) = (each for each in of_kind(manifests, "ConfigMap") if {"name": each["metadata"]["name"]} == source)
    assert key in config["data"]
    assert not any("subPath" in mount for mount in pod.bridge["volumeMounts"])


def test_the_configuration_is_good_as_the_command_line_says(manifests: tuple[Manifest, ...], tmp_path: Path) -> None:
    (pod,) = pods(manifests)
    assert settings_of(manifests, tmp_path).rules
    done = subprocess.run(
        [sys.executable, "-m", "nats_bridge", "check", "-c", str(tmp_path / "config.yaml")],
        env=variables(pod),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


def test_the_rendered_configuration_is_the_overlays_file(overlay: str, manifests: tuple[Manifest, ...]) -> None:
    (config,) = (each for each in of_kind(manifests, "ConfigMap") if each["metadata"]["name"] == "nats-bridge")
    assert config["data"] == {"config.yaml": (OVERLAYS[overlay] / "config.yaml").read_text("utf-8")}


def test_suggested_credentials_are_where_the_secret_is_mounted(overlay: str, manifests: tuple[Manifest, ...]) -> None:
    (pod,) = pods(manifests)
    text = (OVERLAYS[overlay] / "config.yaml").read_text("utf-8")
    (path,) = re.findall(r"# creds: (\S+) #", text)
    assert volume(pod, path.rpartition("/")[0])["secret"] == {
        "secretName": re.findall(r"file of the Secret (\S+)", text)[0],
        "optional": True,
    }


def test_variables_are_settings_and_the_port_is_the_one_listened_on(
    manifests: tuple[Manifest, ...], tmp_path: Path
) -> None:
    (pod,) = pods(manifests)
    given = variables(pod)
    ours = {name for name in given if name.startswith("BRIDGE_")} - {SECRETS_DIR_VARIABLE}
    understood = settings_overlay(given)
    assert understood.problems == []
    assert set(understood.variables.values()) == ours
    (port,) = pod.bridge["ports"]
    settings = settings_of(manifests, tmp_path)
    # Every interface: the node's probes come to the pod's address.
    assert settings.http.address == ("", port["containerPort"])
    assert settings.http.changes_from == "loopback"


def test_probes_ask_the_port_by_its_name(manifests: tuple[Manifest, ...]) -> None:
    (pod,) = pods(manifests)
    (port,) = pod.bridge["ports"]
    asked = {name: pod.bridge[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {name: probe["path"] for name, probe in asked.items()} == {
        "startupProbe": "/startupz",
        "livenessProbe": "/livez",
        "readinessProbe": "/readyz?exclude=connections",
    }
    assert {probe["port"] for probe in asked.values()} == {port["name"]}
    assert len(port["name"]) <= 15


def test_what_pods_may_do_is_the_least(manifests: tuple[Manifest, ...]) -> None:
    user, _, group = of_image("USER").partition(":")
    expected = {**SECURITY, "runAsUser": int(user), "runAsGroup": int(group)}
    for pod in pods(manifests):
        assert pod.spec["automountServiceAccountToken"] is False
        for container in pod.containers:
            assert container["securityContext"] == expected, container["name"]
            assert container["resources"]["requests"]
            assert "memory" in container["resources"]["limits"]


def test_the_time_to_end_is_longer_than_the_program_takes(manifests: tuple[Manifest, ...], tmp_path: Path) -> None:
    (pod,) = pods(manifests)
    closing = 1 + len(settings_of(manifests, tmp_path).connections)  # rules that are given up, then each connection
    assert pod.spec["terminationGracePeriodSeconds"] >= open_run._DRAIN + closing * CLOSING + 5


def test_the_three_ways_differ_in_nothing_but_the_native_sidecars_restart() -> None:
    containers = {name: dict(pods(render(folder))[0].bridge) for name, folder in OVERLAYS.items()}
    assert containers["native-sidecar"].pop("restartPolicy") == "Always"
    assert containers["native-sidecar"] == containers["classic-sidecar"] == containers["standalone"]
    (native,) = pods(render(OVERLAYS["native-sidecar"]))
    (classic,) = pods(render(OVERLAYS["classic-sidecar"]))
    assert [container["name"] for container in native.spec["initContainers"]] == ["nats-bridge"]
    assert "initContainers" not in classic.spec
    assert native.spec["volumes"] == classic.spec["volumes"]


def test_images_have_the_packages_version(manifests: tuple[Manifest, ...]) -> None:
    workspace, bridge = (
        tomllib.loads((PROJECT / place / "pyproject.toml").read_text("utf-8")) for place in (".", "bridge")
    )
    name = workspace["tool"]["nats-bridge"]["image"]
    images = {container["image"] for pod in pods(manifests) for container in pod.containers}
    assert images == {f"{name}:{bridge['project']['version']}"}
    # Unqualified, a node would ask a registry of its own choice.
    assert "." in name.partition("/")[0]


def test_selectors_choose_the_pods_and_ports_exist(manifests: tuple[Manifest, ...]) -> None:
    (pod,) = pods(manifests)
    (port,) = pod.bridge["ports"]
    assert selects(pod.workload["spec"]["selector"], pod.labels)
    for policy in of_kind(manifests, "NetworkPolicy"):
        assert selects(policy["spec"]["podSelector"], pod.labels)
        assert {each["port"] for rule in policy["spec"]["ingress"] for each in rule["ports"]} == {port["containerPort"]}
    for budget in of_kind(manifests, "PodDisruptionBudget"):
        assert selects(budget["spec"]["selector"], pod.labels)
        assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        assert budget["spec"]["maxUnavailable"] < pod.workload["spec"]["replicas"]
    for service in of_kind(manifests, "Service"):
        assert service["spec"]["selector"].items() <= pod.labels.items()
        (offered,) = service["spec"]["ports"]
        assert (offered["targetPort"], offered["port"]) == (port["name"], port["containerPort"])
        (monitor,) = of_kind(manifests, "ServiceMonitor")
        assert selects(monitor["spec"]["selector"], service["metadata"]["labels"])
        assert [each["port"] for each in monitor["spec"]["endpoints"]] == [offered["name"]]
    for monitor in of_kind(manifests, "PodMonitor"):
        assert selects(monitor["spec"]["selector"], pod.labels)
        assert [each["port"] for each in monitor["spec"]["podMetricsEndpoints"]] == [port["name"]]
    constraints = pod.spec.get("topologySpreadConstraints", [])
    assert all(selects(constraint["labelSelector"], pod.labels) for constraint in constraints)


def test_each_overlay_has_what_its_way_of_running_needs() -> None:
    kinds = {name: sorted({manifest["kind"] for manifest in render(folder)}) for name, folder in OVERLAYS.items()}
    with_pods = ["ConfigMap", "Deployment", "Namespace", "NetworkPolicy"]
    alone = sorted([*with_pods, "PodDisruptionBudget", "Service"])
    assert kinds == {"native-sidecar": with_pods, "classic-sidecar": with_pods, "standalone": alone}


def test_a_monitor_comes_only_where_it_is_asked_for() -> None:
    # Without the Prometheus operator a cluster refuses it.
    monitors = {
        name: [manifest["kind"] for manifest in monitored(folder) if manifest not in render(folder)]
        for name, folder in OVERLAYS.items()
    }
    assert monitors == {
        "native-sidecar": ["PodMonitor"],
        "classic-sidecar": ["PodMonitor"],
        "standalone": ["ServiceMonitor"],
    }


def test_replicas_agree_on_a_leader(manifests: tuple[Manifest, ...], tmp_path: Path) -> None:
    (pod,) = pods(manifests)
    assert pod.workload["spec"]["replicas"] == 2
    leadership = settings_of(manifests, tmp_path).leadership
    assert leadership is not None
    assert leadership.connection in settings_of(manifests, tmp_path).connections


def test_everything_is_in_one_namespace_that_allows_no_more(manifests: tuple[Manifest, ...]) -> None:
    (namespace,) = of_kind(manifests, "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    others = [manifest for manifest in manifests if manifest["kind"] != "Namespace"]
    assert {manifest["metadata"]["namespace"] for manifest in others} == {namespace["metadata"]["name"]}
