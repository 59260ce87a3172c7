"""What the Dockerfile and its lock files say, as text."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.container.conftest import BASE, DOCKERFILE, PROJECT
from tests.container.engine import Engine, MissingToolError

TEXT = DOCKERFILE.read_text("utf-8").replace("\\\n", "")
WORKSPACE = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))
BRIDGE = tomllib.loads((PROJECT / "bridge" / "pyproject.toml").read_text("utf-8"))


def test_stages_on_one_base_that_names_no_registry() -> None:
    assert re.findall(r"^(?:ARG BASE|FROM)[= ](.*)$", TEXT, re.M) == [
        *(BASE, "${BASE} AS build", "build AS build-conformance"),
        *("${BASE} AS sidecar", "sidecar AS conformance", "sidecar"),
    ]


def test_everything_is_installed_from_hashed_locks_or_without_an_index() -> None:
    commands = re.findall(r"^RUN (.*)$", TEXT, re.M)
    installs = [
        part for command in commands for part in command.split("&&") if re.search(r"\b(install|wheel) --", part)
    ]
    assert len(installs) == 6
    for install in installs:
        assert "--no-index" in install or "--require-hashes --only-binary :all:" in install, install
        assert "pip wheel" not in install or "--no-build-isolation" in install, install
    assert not any(word in command for command in commands for word in ("apt-get", "curl", "wget"))


def test_the_lock_of_the_build_has_what_the_package_asks_for() -> None:
    locked = (PROJECT / "requirements/build.lock").read_text("utf-8")
    group = WORKSPACE["dependency-groups"]["build"]
    assert set(BRIDGE["build-system"]["requires"]) <= set(group)
    for wanted in group:
        name = re.split(r"[^\w-]", wanted)[0]
        assert re.search(rf"^{name}==", locked, re.M), wanted


def test_the_lock_of_the_image_has_what_the_package_needs() -> None:
    locked = (PROJECT / "requirements/run.lock").read_text("utf-8")
    for wanted in BRIDGE["project"]["dependencies"]:
        name = re.split(r"[^\w-]", wanted)[0]
        assert name == "nats-transforms" or re.search(rf"^{name}==", locked, re.M), f"{wanted}: make lock"


def test_a_machine_that_lacks_something_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingToolError, match=r"root on Linux|podman, runc, catatonit, debootstrap: not on PATH; apt"):
        Engine(tmp_path)
    assert list(tmp_path.iterdir()) == []
