"""The image, built by a container engine: inspected, and run against a real server."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import stat
import tomllib
from collections.abc import Awaitable, Callable
from importlib.metadata import distributions
from pathlib import Path

import pytest
import yaml
from packaging.utils import canonicalize_name

from nats_conformance.native_servers import free_port
from tests.container.conftest import BASE, PROJECT
from tests.container.contained import contained, finished
from tests.container.engine import Image
from tests.live.raw_messages import RawPeer
from tests.live.shared_servers import Servers

INSTALLED = "opt/nats-bridge"
DECLARED = tomllib.loads((PROJECT / "bridge" / "pyproject.toml").read_text("utf-8"))["project"]
REFUSALS = (errno.EROFS, errno.ENOENT, errno.EACCES)
WRITES = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text('x')"


@pytest.fixture
def config_map(tmp_path: Path) -> Callable[[str, int], Path]:
    """`config_map(url, port)`: a folder with a configuration."""

    def make(url: str, port: int) -> Path:
        configuration = yaml.safe_load((PROJECT / "config/republish-monitor.yaml").read_text("utf-8"))
        configuration["connections"]["default"]["servers"] = [url]
        configuration["http"] = {"listen": f"127.0.0.1:{port}"}
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(configuration), "utf-8")
        tmp_path.chmod(0o755)  # another user reads it
        return tmp_path

    return make


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """A folder that the image's user writes into."""
    tmp_path.chmod(0o777)
    return tmp_path


async def test_it_runs_without_rights_on_a_read_only_root_and_ends_on_a_signal(
    image: Image,
    config_map: Callable[[str, int], Path],
    native_server: Servers,
    raw_peer: Callable[[str], Awaitable[RawPeer]],
) -> None:
    async with native_server("2.10.27") as server:
        peer = await raw_peer(server.url)
        await peer.create_stream(name="ORDERS", subjects=["orders.>"])
        copies = await peer.collect("monitor.>")
        async with contained(image, {"/etc/nats-bridge": config_map(server.url, free_port())}) as container:
            await container.log.ready()
            await peer.store(b"orders.eu.42", b"hello")
            await copies.count(1)

            facts = container.facts()
            assert facts["Uid"].split() == ["65532"] * 4
            assert facts["Gid"].split() == ["65532"] * 4
            assert facts["Groups"] in ("", "65532")
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
                assert any(os.strerror(number) in said for number in REFUSALS), (place, said)

            kind, *health = image.facts["Healthcheck"]["Test"]
            code, said = await container.run(*health)
            assert (kind, code) == ("CMD", 0), said
            assert await container.stop(signal.SIGTERM) == 0
            assert await container.log.said("sidecar.stopped")


async def test_what_is_wrong_is_reported_in_a_line_and_an_exit_code(image: Image) -> None:
    code, said = await finished(*image.started_by())
    reported = json.loads(said)  # one line, for those who collect logs
    missing = "/etc/nats-bridge/config.yaml: no such file; give the configuration with -c FILE"
    assert (code, reported["event"], reported["reason"]) == (2, "sidecar.refused", missing)


async def test_every_command_answers(image: Image) -> None:
    assert await finished(*image.started_by("--version")) == (0, f"nats-bridge, version {DECLARED['version']}\n")
    code, said = await finished(*image.started_by("check", "--schema"))
    assert (code, said) == (0, (PROJECT / "config/schema.json").read_text("utf-8"))


async def test_the_suite_is_in_an_image_of_the_same_file_and_not_in_the_sidecars(
    image: Image, build: Callable[..., Image], native_server: Servers, reports: Path
) -> None:
    code, said = await finished(*image.started_by("conform", "--help"))
    assert (code, said.split("\n")[0].partition(" pip ")[2]) == (2, f"install nats-conformance=={DECLARED['version']}")
    image = build("nats-bridge-conformance", "--target=conformance")
    async with native_server("2.10.27") as server:
        wanted = ("conform", "--server", server.url, "--select", "adr30/adr-table/rest", "--report", "/report")
        options = ("--tmpfs=/tmp", f"--volume={reports}:/report")
        code, said = await finished(*image.started_by(*wanted, options=options))
        assert code == 0, said
    report = json.loads((reports / "report.json").read_text("utf-8"))
    assert report["passed"]
    assert report["counts"]["pass"] >= 5


def test_its_settings_are_those_declared_and_kubernetes_can_judge_them(image: Image) -> None:
    config, project = image.config, DECLARED
    labels = {
        name.removeprefix("org.opencontainers.image."): said
        for name, said in config["Labels"].items()
        if name.startswith("org.opencontainers.")
    }
    assert labels.pop("description")
    assert labels == {
        "title": project["name"],
        "version": project["version"],
        "licenses": project["license"],
        "source": project["urls"]["Source"],
        "documentation": project["urls"]["Documentation"],
        "revision": "0123456",  # --build-arg REVISION
        "base.name": BASE,
    }
    # Kubernetes' runAsNonRoot cannot judge a user's name.
    assert all(int(number) > 10_000 for number in config["User"].split(":"))
    assert image.facts["Architecture"] in ("amd64", "arm64")
    assert config["StopSignal"] in ("SIGTERM", "15")


def test_only_what_the_package_is_made_of_reaches_the_builder(build: Callable[..., Image]) -> None:
    sources = build("nats-bridge-build", "--target=build").mounted() / "src"
    assert {path.name for path in sources.iterdir()} == {"transforms", "bridge", "requirements"}
    assert {path.name for path in (sources / "requirements").iterdir()} == {"build.lock", "run.lock"}
    assert list(sources.rglob("__pycache__")) == []


def test_its_bill_of_materials_names_what_is_installed_and_nothing_else(root: Path) -> None:
    bill = json.loads((root / INSTALLED / "nats-bridge.cdx.json").read_text("utf-8"))
    about = bill["metadata"]["component"]
    assert (about["name"], about["licenses"][0]["license"]["id"]) == ("nats-bridge", "Apache-2.0")
    named = {(canonicalize_name(each["name"]), each["version"]) for each in [about, *bill["components"]]}
    there = {
        (canonicalize_name(found.name), found.version)
        for place in (root / INSTALLED).glob("lib/python3.*/site-packages")
        for found in distributions(path=[str(place)])
    }
    assert named == there
    # By which a scanner finds vulnerabilities.
    assert [each["name"] for each in bill["components"] if not each.get("purl", "").startswith("pkg:pypi/")] == []


def test_nothing_is_left_that_installs_or_compiles(root: Path) -> None:
    names = {path.name for path in root.rglob("*") if not path.is_dir()}
    assert "python3" in names
    assert not names & {"pip", "pip3", "gcc", "cc", "make", "git", "curl", "wget"}
    packages = {path.name for path in root.rglob("site-packages/*")}
    assert not packages & {"pip", "setuptools", "wheel", "hatchling"}
    assert not list(root.rglob("ensurepip"))


def test_what_is_installed_belongs_to_root_and_only_root_can_change_it(root: Path) -> None:
    found = [root / INSTALLED, *(root / INSTALLED).rglob("*")]
    for path in found:
        facts = path.lstat()
        assert (facts.st_uid, facts.st_gid) == (0, 0), path
        assert stat.S_ISLNK(facts.st_mode) or not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH), path
    assert not [path for path in found if path.suffix == ".py" and not _bytecode(path).exists()]


def test_built_again_it_holds_the_same_bytes(root: Path, build: Callable[..., Image]) -> None:
    again = build("nats-bridge-again", "--no-cache").mounted()
    assert _contents(again / INSTALLED) == _contents(root / INSTALLED)


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
