"""docs/kubernetes.md: what it shows to be typed works, so far as possible without a cluster and a container engine."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from nats_bridge.settings import load
from tests.k8s.charts import rendered
from tests.k8s.rendering import OVERLAYS, PROJECT, Manifest, name_of, render
from tests.k8s.validation import problems
from tests.k8s.workloads import of_image, of_kind, pods

TEXT = (PROJECT / "docs/kubernetes.md").read_text("utf-8")
BLOCKS = {block.partition("\n")[0]: block for block in re.findall(r"```yaml\n(.*?)```", TEXT, re.S)}
"""Examples in YAML, by their first line."""
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", TEXT, re.S) for line in block.splitlines()]


def manifests_in(namespace: str) -> list[Manifest]:
    """What the overlay that lives in a namespace makes there."""
    (found,) = (
        documents
        for documents in map(render, OVERLAYS.values())
        if documents[0]["metadata"]["name"] == namespace and documents[0]["kind"] == "Namespace"
    )
    return list(found)


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page(command: str, tmp_path: Path) -> None:
    words = shlex.split(command)
    match words:
        case ["kubectl", "kustomize", folder]:
            assert list(yaml.safe_load_all(run(words, PROJECT))) == list(render(PROJECT / folder))
        case ["kubectl", "apply", "-k", folder]:
            assert render(PROJECT / folder)  # the part of it that is done here; the rest is the cluster's
        case ["kubectl", "-n", namespace, "rollout", "status" | "restart", workload]:
            names = [name_of(manifest).lower() for manifest in manifests_in(namespace)]
            assert workload in names
        case ["kubectl", "-n", namespace, "port-forward", service, port]:
            (found,) = (each for each in manifests_in(namespace) if name_of(each).lower() == service)
            assert int(port) in [each["port"] for each in found["spec"]["ports"]]
        case [
            "kubectl",
            "-n",
            namespace,
            "create",
            "secret",
            "generic",
            name,
            source,
            "--dry-run=client",
            "-o",
            "yaml",
        ]:
            key, _, file = source.removeprefix("--from-file=").partition("=")
            (tmp_path / file).write_text("a credential", "utf-8")
            secret = yaml.safe_load(run(words, tmp_path))
            (pod,) = pods(manifests_in(namespace))
            mounted = [each["secret"]["secretName"] for each in pod.spec["volumes"] if "secret" in each]
            assert mounted == [name] == [secret["metadata"]["name"]]
            assert list(secret["data"]) == [key] == ["nats.creds"]
        case ["nats-bridge", *arguments, "--server", _]:  # what needs no server of it
            program = [sys.executable, "-m", "nats_bridge", *arguments]
            assert ": ok, " in run(program, PROJECT)
        case ["helm", "upgrade", "--install", release, chart, "--namespace", namespace, "--create-namespace", *values]:
            assert rendered(PROJECT / chart, *(word.replace("=", f"={PROJECT}/") for word in values), release=release)
        case ["helm", "template", release, chart, *options, ">", "check.yaml"]:
            given = [word.replace("config=k8s", f"config={PROJECT}/k8s") for word in options]
            made = rendered(PROJECT / chart, *given, release=release)
            assert sorted(name_of(each) for each in made) == [
                f"{kind}/nats-bridge-check" for kind in ("ConfigMap", "Job")
            ]
        case ["kubectl", "-n", "nats-bridge", "wait", "--for=condition=complete", "--timeout=2m", name]:
            assert name == "job/nats-bridge-check"
        case ["kubectl", "-n", "nats-bridge", "apply" | "replace", *_, "-f", file]:
            assert f"> {file}\n" in TEXT
        case ["printf", head, ">", "rule.yaml"]:
            indented = (PROJECT / "k8s/monitoring/alerts.yaml").read_text("utf-8").replace("\n", "\n  ")
            rule = yaml.safe_load(f"{head.encode().decode('unicode_escape')}  {indented}")
            assert (rule["kind"], len(rule["spec"]["groups"][0]["rules"])) == (
                "PrometheusRule",
                indented.count("- alert:"),
            )
        case ["sed", "s/^/  /", file, ">>", "rule.yaml"]:
            assert (PROJECT / file).is_file()
        case ["make", target]:
            assert re.search(rf"^{target}:", (PROJECT / "Makefile").read_text("utf-8"), re.M)
        case ["docker", "build", "--tag", tag, *options, "."] | ["docker", "push", tag, *options]:
            assert tag in {container["image"] for container in pods(render(OVERLAYS["standalone"]))[0].containers}
            arguments = re.findall(r"^ARG (\w+)", (PROJECT / "Dockerfile").read_text("utf-8"), re.M)
            given = [word.partition("=")[0] for word in options if "=" in word]
            assert set(given) <= set(arguments)
        case _:
            pytest.fail(f"no test knows how to try: {command}")


def test_the_patch_that_leaves_readiness_out(tmp_path: Path) -> None:
    patch = BLOCKS["patches:"]
    overlay = {**yaml.safe_load((OVERLAYS["native-sidecar"] / "kustomization.yaml").read_text("utf-8"))}
    # Kustomize reads below the folder it is given and next to it, not across the file system.
    target = tmp_path / "k8s"
    run(["cp", "-r", str(PROJECT / "k8s"), str(target)], tmp_path)
    kustomization = target / "overlays/native-sidecar/kustomization.yaml"
    kustomization.write_text(yaml.safe_dump({**overlay, **yaml.safe_load(patch)}), "utf-8")
    (pod,) = pods(render(kustomization.parent))
    assert "readinessProbe" not in pod.bridge
    assert "livenessProbe" in pod.bridge


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_only_an_application_with_the_label_gets_the_sidecar(kind: str, tmp_path: Path) -> None:
    copied = tmp_path / "k8s"
    run(["cp", "-r", str(PROJECT / "k8s"), str(copied)], tmp_path)
    application = copied / "example-app/deployment.yaml"
    labelled = yaml.safe_load(application.read_text("utf-8"))
    labelled["kind"] = kind
    labelled["spec"]["template"]["spec"]["initContainers"] = [{"name": "migrate", "image": "migrate"}]
    without = yaml.safe_load(application.read_text("utf-8"))
    without["metadata"] = {"name": "other", "labels": {"nats-bridge": "no"}}
    application.write_text(yaml.safe_dump_all([labelled, without]), "utf-8")
    rendered = {name_of(each): each for each in render(copied / "overlays/native-sidecar")}
    template = rendered[f"{kind}/orders"]["spec"]["template"]
    # First: what else starts before the application may already need the rules.
    assert [each["name"] for each in template["spec"]["initContainers"]] == ["nats-bridge", "migrate"]
    assert template["metadata"]["labels"]["nats-bridge"] == "sidecar"
    other = rendered["Deployment/other"]["spec"]["template"]
    assert [each["name"] for each in other["spec"]["containers"]] == ["orders"]
    assert "initContainers" not in other["spec"]
    assert "nats-bridge" not in other["metadata"]["labels"]


def test_tables_and_numbers_are_those_of_the_manifests() -> None:
    shown = re.findall(r"^\| `(k8s/overlays/[\w-]+)` \|", TEXT, re.M)
    assert sorted(shown) == [f"k8s/overlays/{name}" for name in OVERLAYS]
    (pod,) = pods(render(OVERLAYS["standalone"]))
    probes = dict(re.findall(r"^\| (startup|liveness|readiness) \| `(/[\w?=]+)` \|", TEXT, re.M))
    assert probes == {
        name: pod.bridge[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")
    }
    for key, value in [
        ("terminationGracePeriodSeconds", pod.spec["terminationGracePeriodSeconds"]),
        ("disableNameSuffixHash", None),
    ]:
        assert (key if value is None else f"{key}: {value}") in TEXT
    assert f"user and group {of_image('USER').partition(':')[0]}" in TEXT
    resources = pod.bridge["resources"]
    assert resources == {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
    assert "128 MiB" in TEXT
    assert "512 MiB" in TEXT
    assert "100m" in TEXT
    (policy,) = of_kind(render(OVERLAYS["standalone"]), "NetworkPolicy")
    assert "4222" in str(policy["spec"]["egress"])


TWO_CLUSTERS = """
connections:
  east:
    servers: ["tls://nats.nats.svc:4222"]
    tls:
      ca: /etc/nats-bridge-credentials/ca.crt
      cert: /etc/nats-bridge-credentials/tls.crt
      key: /etc/nats-bridge-credentials/tls.key
  west:
    servers: ["tls://nats.west.example.com:4443"]
    tls: {ca: /etc/west-tls/ca.crt, cert: /etc/west-tls/tls.crt, key: /etc/west-tls/tls.key}
leadership: {connection: east}
rules:
  - name: orders
    kind: mirror
    stream: ORDERS_COPY
    mirror: {name: ORDERS, from: west, subject_transforms: [{src: "orders.>", dest: "orders.>"}]}
    to: east
"""


def test_the_two_clusters_of_the_page_are_reached(tmp_path: Path) -> None:
    config, values = tmp_path / "bridge.yaml", tmp_path / "values.yaml"
    config.write_text(TWO_CLUSTERS, "utf-8")
    values.write_text(BLOCKS["# values.yaml"], "utf-8")
    unreadable: list[str] = []
    assert load(config, {}, unreadable=unreadable).leadership
    made = rendered(PROJECT / "k8s/chart", "--set-file", f"config={config}", "--values", values)
    assert not [lines for each in made if (lines := problems(each, "1.29"))]
    (pod,) = pods(made)
    mounted = {mount["mountPath"] for mount in pod.bridge["volumeMounts"]}
    assert {each.split(": ")[1].rpartition("/")[0] for each in unreadable} == mounted - {"/etc/nats-bridge"}
    (policy,) = of_kind(made, "NetworkPolicy")
    assert {4222, 4443} <= {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]}


def test_the_egress_to_another_namespace_is_valid() -> None:
    (policy,) = of_kind(render(OVERLAYS["standalone"]), "NetworkPolicy")
    spec = {**policy["spec"], "egress": yaml.safe_load(BLOCKS["# egress"])}
    assert problems({**policy, "spec": spec}, "1.29") == []


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([\w./-]+\.md)\)", TEXT):
        assert (PROJECT / "docs" / target).is_file(), target


def test_every_configuration_in_the_overlays_loads() -> None:
    for folder in OVERLAYS.values():
        assert load(folder / "config.yaml", {}).rules
