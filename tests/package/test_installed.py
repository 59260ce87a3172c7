"""The wheels of the sidecar and the suite, installed with their locked dependencies, outside this folder."""

from __future__ import annotations

import asyncio
import json

import click
import pytest

from nats_bridge.cli.entry import program
from nats_transforms.tested_versions import LIVE_VERSIONS
from tests.live.conftest import _name_numbers, raw_peer, servers, unique_name
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecar_process import SidecarProcess
from tests.package.conftest import DECLARED, PROJECT, Installed

__all__ = ["_name_numbers", "raw_peer", "servers", "unique_name"]

ON_SPARK = {"capture", "restore", "backfill", "diff"}
"""The commands of the package that is not installed here."""

IMPORT_ALL = """
import importlib, pkgutil, sys
for package in sys.argv[1:]:
    module = importlib.import_module(package)
    assert module.__file__.startswith(sys.prefix), module.__file__
    for found in pkgutil.walk_packages(module.__path__, package + "."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
"""


def test_what_it_needs_is_there(installed: Installed) -> None:
    done = installed.run("python", "-m", "pip", "check")
    assert done.returncode == 0, done.stdout


def test_every_module_can_be_imported_without_what_only_tests_have(installed: Installed) -> None:
    packages = ("nats_transforms", "nats_bridge", "nats_conformance")
    done = installed.run("python", "-W", "error", "-c", IMPORT_ALL, *packages)
    assert done.returncode == 0, done.stderr


def test_it_prints_its_version(installed: Installed) -> None:
    done = installed.run("nats-bridge", "--version")
    assert done.stdout == f"nats-bridge, version {DECLARED['project']['version']}\n"


@pytest.mark.parametrize("command", ["", *sorted({*program.list_commands(click.Context(program))} - ON_SPARK)])
def test_every_command_has_help(command: str, installed: Installed) -> None:
    done = installed.run("nats-bridge", *command.split(), "--help")
    assert done.returncode == 0, done.stderr
    assert "Example:" in done.stdout


def test_the_schema_is_the_published_one(installed: Installed) -> None:
    done = installed.run("nats-bridge", "check", "--schema")
    assert json.loads(done.stdout) == json.loads((PROJECT / "config" / "schema.json").read_text("utf-8"))


def test_a_transform_is_explained(installed: Installed) -> None:
    done = installed.run("nats-bridge", "explain", "orders.*.*", "o.{{partition(3,1,2)}}.$2", "orders.eu.42", "--json")
    assert done.returncode == 0, done.stderr
    assert '"o.0.42"' in done.stdout


@pytest.mark.parametrize("command", sorted(ON_SPARK))
def test_a_command_of_a_package_that_is_missing_names_it(command: str, installed: Installed) -> None:
    done = installed.run("nats-bridge", command, "--help")
    assert done.returncode == 2
    assert f"pip install nats-bridge-spark=={DECLARED['project']['version']}\n" in done.stderr


def test_the_demo_agrees_with_native_republish(installed: Installed) -> None:
    done = installed.run("nats-bridge", "demo")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("6 of 6 republished messages agree: subject, header bytes, payload, order.\n")


def test_cases_of_the_catalogue_pass_on_servers_engine_and_bridge(installed: Installed) -> None:
    version = LIVE_VERSIONS[-1]
    done = installed.run("nats-bridge", "conform", "--versions", version, "--select", "adr28/headers/", "--report", "r")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {found.name for found in (installed.folder / "r").iterdir()} >= {"index.html", "history.jsonl"}


def test_the_suite_alone_leaves_the_bridge_out_and_says_so(suite_alone: Installed) -> None:
    run = ("nats-conform", "run", "--versions", LIVE_VERSIONS[-1], "--select", "adr28/headers/")
    done = suite_alone.run(*run)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 subjects of test" in done.stdout
    assert f"without the bridge: pip install nats-bridge=={DECLARED['project']['version']}\n" in done.stderr
    asked = suite_alone.run(*run, "--subjects", "bridge")
    assert asked.returncode == 2
    assert f"the bridge is not installed: pip install nats-bridge=={DECLARED['project']['version']}\n" in asked.stderr


async def test_a_new_user_gets_from_a_configuration_to_a_running_rule(
    installed: Installed, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(LIVE_VERSIONS[-1])
    peer, name = await raw_peer(url), unique_name("orders")
    await peer.create_stream(name=name, subjects=[f"{name}.>"])
    copies = await peer.collect(f"monitor{name}.>")
    rule = (
        f"{{name: monitor, kind: republish, stream: {name}, republish: {{src: '{name}.>', dest: 'monitor{name}.>'}}}}"
    )
    config = installed.folder / "bridge.yaml"
    config.write_text(f"connections: {{default: {{servers: ['{url}']}}}}\nrules: [{rule}]\n", "utf-8")
    words = ("check", "-c", "bridge.yaml", "--server", "config")
    checked = await asyncio.to_thread(installed.run, "nats-bridge", *words)
    assert checked.returncode == 0, checked.stderr
    process = await asyncio.create_subprocess_exec(
        *installed.program("nats-bridge", "run", "-c", "bridge.yaml"),
        cwd=installed.folder,
        env={**installed.environment, "BRIDGE_HTTP__LISTEN": "", "BRIDGE_LOG__FORMAT": "json"},
        stderr=asyncio.subprocess.PIPE,
    )
    sidecar = SidecarProcess(process)
    try:
        await sidecar.said("rule.ready")
        await peer.store(f"{name}.1".encode())
        await copies.count(1)
        assert await sidecar.stop() == 0, sidecar.log
    finally:
        await sidecar.kill()
