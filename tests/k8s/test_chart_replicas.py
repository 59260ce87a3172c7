"""Replicas of the chart have leases: from the configuration, or else from the chart."""

from __future__ import annotations

from pathlib import Path

import pytest

from nats_bridge.settings import Settings, load
from tests.k8s.charts import CHART, helm, rendered
from tests.k8s.rendering import OVERLAYS, PROJECT
from tests.k8s.validation import problems
from tests.k8s.workloads import Pod, of_kind, pods

WITHOUT = PROJECT / "config/republish-monitor.yaml"
WITH = OVERLAYS["standalone"] / "config.yaml"
OTHER_CONNECTIONS = """
connections: {east: {servers: ["nats://east:4222"]}, west: {servers: ["nats://west:4222"]}}
rules:
  - {name: r, kind: republish, stream: S, from: east, to: west, republish: {src: "s.>", dest: "d.>"}}
"""


def deployed(config: Path, *values: str, folder: Path) -> tuple[Pod, Settings]:
    """The pod of a standalone release, and the settings that its process has."""
    options = [word for value in values for word in ("--set", value)]
    made = rendered(CHART, "--set-file", f"config={config}", *options)
    (pod,) = pods(made)
    assert problems(pod.workload, "1.37") == []
    file = folder / "config.yaml"
    file.write_text(of_kind(made, "ConfigMap")[0]["data"]["config.yaml"], "utf-8")
    return pod, load(file, {entry["name"]: entry.get("value", "") for entry in pod.bridge["env"]})


def strategy(pod: Pod) -> str:
    return str(pod.workload["spec"]["strategy"].get("type", "RollingUpdate"))


def test_default_replicas_have_leases_without_a_configuration_section(tmp_path: Path) -> None:
    assert load(WITHOUT, {}).leadership is None
    pod, settings = deployed(WITHOUT, folder=tmp_path)
    assert pod.workload["spec"]["replicas"] == 2
    assert settings.leadership is not None
    assert (settings.leadership.connection, settings.leadership.share) == ("default", False)
    # The pod before may be the only one of `replicas: 1`, without a lease. Next to it, messages would arrive twice.
    assert strategy(pod) == "Recreate"


def test_replicas_whose_leases_are_written_are_replaced_one_by_one(tmp_path: Path) -> None:
    for config, value in ((WITH, "replicas=2"), (WITHOUT, "leadership.share=false")):
        pod, _ = deployed(config, value, folder=tmp_path)
        assert strategy(pod) == "RollingUpdate"


def test_one_replica_has_none_and_ends_before_the_next_one_starts(tmp_path: Path) -> None:
    pod, settings = deployed(WITHOUT, "replicas=1", folder=tmp_path)
    assert settings.leadership is None
    assert strategy(pod) == "Recreate"


def test_one_replica_with_leases_is_replaced_without_a_gap(tmp_path: Path) -> None:
    for config, value in ((WITH, "replicas=1"), (WITHOUT, "replicas=1,leadership.ttl=5")):
        pod, settings = deployed(config, value, folder=tmp_path)
        assert settings.leadership is not None
        assert strategy(pod) == "RollingUpdate"


def test_values_win_over_the_section_of_the_configuration(tmp_path: Path) -> None:
    pod, settings = deployed(WITH, folder=tmp_path)
    assert not any(entry["name"] == "BRIDGE_LEADERSHIP" for entry in pod.bridge["env"])
    _, changed = deployed(WITH, "leadership.share=true", "leadership.bucket=LEASES", folder=tmp_path)
    assert settings.leadership is not None
    assert changed.leadership == settings.leadership.model_copy(update={"share": True, "bucket": "LEASES"})


def test_queue_groups_can_have_replicas_without_leases(tmp_path: Path) -> None:
    pod, settings = deployed(WITHOUT, "leadership=null", folder=tmp_path)
    assert settings.leadership is None
    assert strategy(pod) == "RollingUpdate"


def test_a_sidecar_takes_the_values_and_guesses_nothing(application: Path) -> None:
    found = {}
    for value in ("replicas=3", "leadership.share=true"):
        options = ["--set-file", f"nats-bridge.config={WITHOUT}", "--set", f"nats-bridge.{value}"]
        (pod,) = pods(rendered(application, *options))
        found[value] = [entry["value"] for entry in pod.bridge["env"] if entry["name"] == "BRIDGE_LEADERSHIP"]
    assert found == {"replicas=3": [], "leadership.share=true": ['{"share":true}']}


def test_leases_need_a_connection_that_is_there(tmp_path: Path) -> None:
    config = tmp_path / "connections.yaml"
    config.write_text(OTHER_CONNECTIONS, "utf-8")
    done = helm("template", "x", CHART, "--kube-version", "1.29", "--set-file", f"config={config}")
    assert done.returncode == 1
    assert (
        "replicas: 2 needs leases, and config has no connection 'default' for them:"
        " set leadership.connection to one of east, west" in done.stderr
    )
    _, settings = deployed(config, "leadership.connection=west", folder=tmp_path)
    assert settings.leadership is not None
    assert settings.leadership.connection == "west"


@pytest.mark.parametrize("text", ["- a list", "rules: [", "connections: east", "connections: {}", "leadership:"])
def test_a_configuration_that_the_program_refuses_is_no_error_of_the_chart(text: str, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(text, "utf-8")
    assert rendered(CHART, "--set-file", f"config={config}")
