"""What is in the two files of a release: all that the program needs, and nothing that merely lay about."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.package.conftest import DECLARED, PACKAGES, PROJECT, Release, build

VERSION = DECLARED["project"]["version"]


@pytest.fixture(scope="module")
def tracked() -> set[str]:
    """The files of the last commit and of the next one."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, check=True)
    return {_packed(name) for name in listed.stdout.split("\0")} - {""}


def _packed(name: str) -> str:
    """A tracked file's name in an archive: what `nats_bridge` links to is packed there."""
    if name.startswith("nats_bridge/") and (PROJECT / name).is_symlink():
        return ""
    link = PROJECT / "nats_bridge" / name.partition("/")[0]
    return f"nats_bridge/{name}" if link.is_symlink() else name


@pytest.fixture(scope="module")
def in_wheel(release: Release) -> set[str]:
    with zipfile.ZipFile(release.wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def in_sdist(release: Release) -> set[str]:
    with tarfile.open(release.sdist) as archive:
        return {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}


@pytest.fixture(scope="module")
def metadata(release: Release) -> Message:
    with zipfile.ZipFile(release.wheel) as archive:
        return Parser().parsestr(archive.read(f"nats_bridge-{VERSION}.dist-info/METADATA").decode())


def _locked(lock: str) -> dict[str, str]:
    lines = (PROJECT / "requirements" / lock).read_text("utf-8").splitlines()
    pins = [line.split()[0].rstrip(";") for line in lines if "==" in line and not line.startswith((" ", "#"))]
    return {canonicalize_name(name.partition("[")[0]): pin for name, _, pin in (pin.partition("==") for pin in pins)}


def test_a_registry_takes_both(release: Release) -> None:
    command = [sys.executable, "-m", "twine", "check", "--strict", str(release.sdist), str(release.wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == 2


def test_its_contents_are_what_a_wheel_should_hold(release: Release) -> None:
    # W002: files of the same bytes, which are empty ones.
    command = [sys.executable, "-m", "check_wheel_contents", "--ignore", "W002"]
    command += ["--toplevel", ",".join(PACKAGES), str(release.wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_wheel_holds_every_file_of_the_packages_and_no_other(in_wheel: set[str], tracked: set[str]) -> None:
    packages = {name for name in tracked if name.split("/")[0] in PACKAGES}
    licences = [f"licenses/{name}" for name in tracked if name.startswith("LICENSE")]
    files = ["METADATA", "WHEEL", "RECORD", "entry_points.txt", *licences]
    about = {f"nats_bridge-{VERSION}.dist-info/{name}" for name in files}
    assert in_wheel == packages | about


def test_what_is_not_python_is_among_them(in_wheel: set[str]) -> None:
    assert {f"{package}/py.typed" for package in PACKAGES} <= in_wheel
    names = {name.removeprefix("nats_bridge/") for name in in_wheel}
    assert {
        "bridge/nats_bridge/observability/http/page/page.js",
        "conformance/nats_conformance/reports/page/page.html",
    } <= names
    assert {
        "conformance/nats_conformance/catalogue/adr28/headers.yaml",
        "conformance/nats_conformance/catalogue/case-file.schema.json",
    } <= names


def test_it_takes_two_names_of_an_environment(in_wheel: set[str]) -> None:
    assert {name.partition("/")[0] for name in in_wheel} == {
        "nats_bridge",
        "pyspark_jetstream",
        f"nats_bridge-{VERSION}.dist-info",
    }


def test_the_source_archive_holds_what_is_declared_and_tracked(in_sdist: set[str], tracked: set[str]) -> None:
    wanted = DECLARED["tool"]["hatch"]["build"]["targets"]["sdist"]["only-include"]
    chosen = {name for name in tracked for place in wanted if name == place or name.startswith(f"{place}/")}
    chosen |= {name for name in tracked if name.startswith("LICENSE")}
    assert in_sdist == chosen | {"pyproject.toml", "README.md", ".gitignore", "PKG-INFO"}


def test_the_same_bytes_come_from_the_tree(release: Release, tmp_path: Path) -> None:
    # So a user can build both from the tag and compare them with what was uploaded.
    build(PROJECT, tmp_path, "--sdist", "--wheel")
    for made in (release.sdist, release.wheel):
        assert (tmp_path / made.name).read_bytes() == made.read_bytes(), made.name


def test_the_metadata(metadata: Message) -> None:
    project = DECLARED["project"]
    assert (metadata["Name"], metadata["Version"]) == ("nats-bridge", VERSION)
    assert metadata["Requires-Python"] == project["requires-python"]
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert str(metadata.get_payload()).startswith("# nats-bridge\n")
    assert metadata.get_all("Provides-Extra") == list(project["optional-dependencies"])


@pytest.mark.parametrize(("extra", "lock"), [("", "run.lock"), ("spark", "spark.lock")])
def test_the_lock_files_satisfy_it(extra: str, lock: str, metadata: Message) -> None:
    locked = _locked(lock)
    wanted = [Requirement(text) for text in metadata.get_all("Requires-Dist") or ()]
    wanted = [one for one in wanted if one.marker is None or one.marker.evaluate({"extra": extra})]
    assert len(wanted) >= len(DECLARED["project"]["dependencies"])
    for one in wanted:
        assert one.specifier.contains(locked[canonicalize_name(one.name)]), one
