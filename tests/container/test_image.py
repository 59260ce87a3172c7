"""The image's own steps, without a container engine: built, inspected, and run against a real server."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import stat
import subprocess
import tomllib
from collections.abc import Awaitable, Callable
from importlib.metadata import distributions
from pathlib import Path

import pytest
import yaml
from packaging.utils import canonicalize_name

from nats_bridge.native_servers import NativeServer, free_port
from tests.container.conftest import PROJECT
from tests.container.contained import contained, finished
from tests.container.dockerfile import Dockerfile
from tests.container.image_build import Image, build
from tests.live.raw_messages import RawPeer

INSTALLED = "opt/nats-bridge"
WRITES = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text('x')"


@pytest.fixture
def mounted(tmp_path: Path, image: Image) -> Callable[[str, int], dict[str, str]]:
    """`mounted(url, port)`: a folder with a configuration, as a ConfigMap is mounted."""

    def make(url: str, port: int) -> dict[str, str]:
        folder = tmp_path / "config"
        folder.mkdir()
        configuration = yaml.safe_load((PROJECT / "config/republish-monitor.yaml").read_text("utf-8"))
        configuration["connections"]["default"]["servers"] = [url]
        configuration["http"] = {"listen": f"127.0.0.1:{port}"}
        (folder / "config.yaml").write_text(yaml.safe_dump(configuration), "utf-8")
        (image.root / "etc/nats-bridge").mkdir(exist_ok=True)  # an engine makes it when it mounts
        return {"/etc/nats-bridge": str(folder)}

    return make


async def test_it_runs_without_rights_on_a_read_only_root_and_ends_on_a_signal(
    image: Image,
    mounted: Callable[[str, int], dict[str, str]],
    native_server: Callable[..., NativeServer],
    raw_peer: Callable[[str], Awaitable[RawPeer]],
) -> None:
    async with native_server("2.10.27") as server:
        peer = await raw_peer(server.url)
        await peer.create_stream(name="ORDERS", subjects=["orders.>"])
        copies = await peer.collect("monitor.>")
        async with contained(image.cell(binds=mounted(server.url, free_port()))) as container:
            await container.log.ready()
            await peer.store(b"orders.eu.42", b"hello")
            await copies.count(1)

            facts = container.facts()
            assert facts["Uid"].split() == ["65532"] * 4
            assert facts["Gid"].split() == ["65532"] * 4
            assert facts["Groups"] == ""
            assert {name: int(value, 16) for name, value in facts.items() if name.startswith("Cap")} == dict.fromkeys(
                ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), 0
            )
            assert facts["NoNewPrivs"] == "1"
            assert facts["NSpid"].split()[-1] == "1"
            # It starts no processes, so as process 1 it has none to collect: no init is needed.
            assert container.children() == []

            for place in ("/x", "/tmp/x", "/home/x", "/opt/nats-bridge/x", "/etc/nats-bridge/x", "/dev/x"):
                code, said = await container.run("python", "-c", WRITES, place)
                assert code == 1
                assert any(os.strerror(number) in said for number in (errno.EROFS, errno.ENOENT)), (place, said)

            health = image.stage.last("HEALTHCHECK")
            command = [str(word) for word in yaml.safe_load(health.text.removeprefix("CMD "))]
            code, said = await container.run(*command)
            assert code == 0, said

            assert await container.stop(signal.SIGTERM) == 0
            assert await container.log.said("sidecar.stopped")


async def test_what_is_wrong_is_reported_in_a_line_and_an_exit_code(image: Image) -> None:
    code, said = await finished(*image.cell().started_by())
    reported = json.loads(said)  # one line, for those who collect logs
    missing = "/etc/nats-bridge/config.yaml: no such file; name the configuration with -c FILE"
    assert (code, reported["event"], reported["reason"]) == (2, "sidecar.refused", missing)


async def test_every_command_answers(image: Image, dockerfile: Dockerfile) -> None:
    version = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert await finished(*image.cell("--version").started_by()) == (0, f"nats-bridge, version {version}\n")
    assert dockerfile.image.labels["org.opencontainers.image.version"] == version
    code, said = await finished(*image.cell("schema").started_by())
    assert (code, said) == (0, (PROJECT / "config/schema.json").read_text("utf-8"))


def test_its_bill_of_materials_names_what_is_installed_and_nothing_else(image: Image) -> None:
    bill = json.loads((image.root / INSTALLED / "nats-bridge.cdx.json").read_text("utf-8"))
    about = bill["metadata"]["component"]
    assert (about["name"], about["licenses"][0]["license"]["id"]) == ("nats-bridge", "Apache-2.0")
    named = {(canonicalize_name(each["name"]), each["version"]) for each in [about, *bill["components"]]}
    there = {
        (canonicalize_name(found.name), found.version)
        for place in (image.root / INSTALLED).glob("lib/python3.*/site-packages")
        for found in distributions(path=[str(place)])
    }
    assert named == there
    # By which a scanner finds vulnerabilities.
    assert [each["name"] for each in bill["components"] if not each.get("purl", "").startswith("pkg:pypi/")] == []


def test_nothing_is_left_that_installs_or_compiles(image: Image) -> None:
    names = {path.name for path in image.root.rglob("*") if not path.is_dir()}
    assert "python3" in names
    assert not names & {"pip", "pip3", "gcc", "cc", "make", "git", "curl", "wget"}
    packages = {path.name for path in image.root.rglob("site-packages/*")}
    assert not packages & {"pip", "setuptools", "wheel", "hatchling"}
    assert not list(image.root.rglob("ensurepip"))


def test_what_is_installed_belongs_to_root_and_only_root_can_change_it(image: Image) -> None:
    found = [image.root / INSTALLED, *(image.root / INSTALLED).rglob("*")]
    for path in found:
        facts = path.lstat()
        assert (facts.st_uid, facts.st_gid) == (0, 0), path
        assert stat.S_ISLNK(facts.st_mode) or not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH), path
    assert not [path for path in found if path.suffix == ".py" and not _bytecode(path).exists()]


def test_built_again_it_holds_the_same_bytes(
    image: Image, dockerfile: Dockerfile, base: Path, wheels: Path, tmp_path: Path
) -> None:
    again = build(dockerfile, PROJECT, base, wheels, tmp_path)
    assert _contents(again.root / INSTALLED) == _contents(image.root / INSTALLED)
    subprocess.run(["rm", "-rf", str(tmp_path)], check=True)


def _bytecode(path: Path) -> Path:
    import importlib.util

    return Path(importlib.util.cache_from_source(str(path)))


def _contents(folder: Path) -> dict[str, str]:
    contents = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            reported = f"-> {path.readlink()}"
        elif stat.S_ISREG(mode):
            reported = f"{oct(mode)} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        else:
            reported = oct(mode)
        contents[str(path.relative_to(folder))] = reported
    return contents
