"""What is in the files of a release: all that its programs need, and nothing that merely lay about."""

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

from tests.package.conftest import DECLARED, DISTRIBUTIONS, PROJECT, Release, build

VERSION = DECLARED["project"]["version"]


@pytest.fixture(params=DISTRIBUTIONS)
def folder(request: pytest.FixtureRequest) -> str:
    """That of a distribution, one after the other."""
    chosen: str = request.param
    return chosen


@pytest.fixture
def packages(folder: str) -> list[str]:
    """The names that a distribution takes in an environment."""
    chosen: list[str] = DISTRIBUTIONS[folder]["tool"]["hatch"]["build"]["packages"]
    return chosen


@pytest.fixture
def tracked(folder: str) -> set[str]:
    """The files of a distribution in the last commit and the next one."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT / folder, capture_output=True, text=True, check=True)
    return set(listed.stdout.split("\0")) - {""}


@pytest.fixture
def in_wheel(release: Release, folder: str) -> set[str]:
    with zipfile.ZipFile(release.archives[folder].wheel) as archive:
        return set(archive.namelist())


@pytest.fixture
def in_sdist(release: Release, folder: str) -> set[str]:
    with tarfile.open(release.archives[folder].sdist) as archive:
        return {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}


@pytest.fixture
def metadata(release: Release, folder: str) -> Message:
    with zipfile.ZipFile(release.archives[folder].wheel) as archive:
        return Parser().parsestr(archive.read(f"{_name(folder)}-{VERSION}.dist-info/METADATA").decode())


def _name(folder: str) -> str:
    return str(DISTRIBUTIONS[folder]["project"]["name"]).replace("-", "_")


def _locked(lock: str) -> dict[str, str]:
    lines = (PROJECT / "requirements" / lock).read_text("utf-8").splitlines()
    pins = [line.split()[0].rstrip(";") for line in lines if "==" in line and not line.startswith((" ", "#"))]
    return {canonicalize_name(name.partition("[")[0]): pin for name, _, pin in (pin.partition("==") for pin in pins)}


def test_a_registry_takes_all(release: Release) -> None:
    files = [str(file) for each in release.archives.values() for file in (each.sdist, each.wheel)]
    command = [sys.executable, "-m", "twine", "check", "--strict", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == 2 * len(DISTRIBUTIONS)


def test_the_distributions_have_one_version_and_require_each_other_at_it() -> None:
    names = {declared["project"]["name"] for declared in DISTRIBUTIONS.values()}
    for folder, declared in DISTRIBUTIONS.items():
        assert declared["project"]["version"] == VERSION
        assert (PROJECT / folder / "LICENSE").read_bytes() == (PROJECT / "LICENSE").read_bytes()
        ours = [each for each in map(Requirement, declared["project"]["dependencies"]) if each.name in names]
        assert [str(each.specifier) for each in ours] == [f"=={VERSION}"] * len(ours)


def test_its_contents_are_what_a_wheel_should_hold(release: Release, folder: str, packages: list[str]) -> None:
    # W002: files of the same bytes, which are empty ones.
    command = [sys.executable, "-m", "check_wheel_contents", "--ignore", "W002"]
    command += ["--toplevel", ",".join(packages), str(release.archives[folder].wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_wheel_holds_every_file_of_the_packages_and_no_other(
    folder: str, packages: list[str], in_wheel: set[str], tracked: set[str]
) -> None:
    declared = DISTRIBUTIONS[folder]["project"]
    points = ["entry_points.txt"] if {"scripts", "entry-points"} & declared.keys() else []
    files = ["METADATA", "WHEEL", "RECORD", "licenses/LICENSE", *points]
    about = {f"{_name(folder)}-{VERSION}.dist-info/{name}" for name in files}
    assert in_wheel == {name for name in tracked if name.split("/")[0] in packages} | about
    assert {f"{package}/py.typed" for package in packages} <= in_wheel


def test_the_source_archive_holds_what_is_declared_and_tracked(
    in_sdist: set[str], tracked: set[str], packages: list[str]
) -> None:
    chosen = {name for name in tracked if name.split("/")[0] in packages}
    assert in_sdist == chosen | {"pyproject.toml", "README.md", "LICENSE", ".gitignore", "PKG-INFO"}


def test_the_same_bytes_come_from_the_tree(release: Release, folder: str, tmp_path: Path) -> None:
    # So a user can build both from the tag and compare them with what was uploaded.
    build(PROJECT / folder, tmp_path, "--sdist", "--wheel")
    for made in (release.archives[folder].sdist, release.archives[folder].wheel):
        assert (tmp_path / made.name).read_bytes() == made.read_bytes(), made.name


def test_the_metadata(folder: str, metadata: Message) -> None:
    project = DISTRIBUTIONS[folder]["project"]
    assert (metadata["Name"], metadata["Version"]) == (project["name"], VERSION)
    assert metadata["Requires-Python"] == project["requires-python"]
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert str(metadata.get_payload()).startswith(f"# {project['name']}\n")


def test_the_lock_files_satisfy_it(folder: str, metadata: Message) -> None:
    locked = _locked("spark.lock" if folder == "pipeline" else "run.lock")
    ours = {declared["project"]["name"] for declared in DISTRIBUTIONS.values()}
    wanted = [Requirement(text) for text in metadata.get_all("Requires-Dist") or ()]
    assert len(wanted) == len(DISTRIBUTIONS[folder]["project"]["dependencies"])
    for one in wanted:
        assert one.name in ours or one.specifier.contains(locked[canonicalize_name(one.name)]), one
