"""The packages as a release has them: built once into dist/, and installed where nothing of this folder is found."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from nats_conformance.native_servers.cache import default_root

PROJECT: Final = Path(__file__).resolve().parents[2]
DISTRIBUTIONS: Final[dict[str, dict[str, Any]]] = {
    folder: tomllib.loads((PROJECT / folder / "pyproject.toml").read_text("utf-8"))
    for folder in ("transforms", "bridge", "conformance", "pipeline")
}
"""The pyproject.toml of each distribution, by its folder."""
DECLARED: Final = DISTRIBUTIONS["bridge"]
_STEP: Final = 280.0  # seconds; a bound for hangs


@dataclass(frozen=True, slots=True)
class Archives:
    """The two files of a distribution."""

    sdist: Path
    wheel: Path


@dataclass(frozen=True, slots=True)
class Release:
    """The built files of a release: those of each distribution, by its folder."""

    folder: Path
    archives: dict[str, Archives]

    @property
    def bill(self) -> Path:
        """Its bill of materials (CycloneDX): the sidecar and the suite with all that the lock file installs."""
        return self.folder / f"nats_bridge-{DECLARED['project']['version']}.cdx.json"

    @property
    def sums(self) -> Path:
        """SHA-256 of the others."""
        return self.folder / "SHA256SUMS"

    def wheels(self, *distributions: str) -> list[Path]:
        """The wheels of these distributions."""
        return [self.archives[each].wheel for each in distributions]


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment that has the sidecar, the suite, and what the lock file names, and nothing else."""

    python: Path
    folder: Path

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment in a folder of its own, with no variable of ours but the servers' cache."""
        return subprocess.run(
            self.program(*command),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=_STEP,
            check=False,
        )

    def program(self, name: str, *arguments: str) -> list[str]:
        """A program of the environment with its arguments."""
        return [str(self.python.with_name(name)), *arguments]

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which programs run."""
        return {"PATH": os.defpath, "HOME": str(self.folder), "NATS_BRIDGE_CACHE": str(default_root())}


def build(source: Path, into: Path, *what: str) -> None:
    """Build with what the lock file names."""
    command = [sys.executable, "-m", "build", "--no-isolation", *what, "--outdir", str(into), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_STEP, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def release() -> Release:
    """Of each distribution a source archive, and a wheel that is built from the archive."""
    folder = PROJECT / "dist"
    shutil.rmtree(folder, ignore_errors=True)
    archives = {}
    for each, declared in DISTRIBUTIONS.items():
        build(PROJECT / each, folder)
        name = f"{declared['project']['name'].replace('-', '_')}-{declared['project']['version']}"
        archives[each] = Archives(folder / f"{name}.tar.gz", folder / f"{name}-py3-none-any.whl")
    return Release(folder, archives)


@pytest.fixture(scope="session")
def installed(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The sidecar and the suite, installed from wheels and the lock file."""
    return install(release.wheels("transforms", "bridge", "conformance"), tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="session")
def suite_alone(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The suite without the sidecar."""
    return install(release.wheels("transforms", "conformance"), tmp_path_factory.mktemp("alone"))


def install(wheels: list[Path], folder: Path) -> Installed:
    """Install wheels and the lock file into a new environment."""
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True, timeout=_STEP)
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    locked = ["--require-hashes", "--requirement", str(PROJECT / "requirements" / "run.lock")]
    for what in (locked, ["--no-deps", "--no-index", *map(str, wheels)]):
        subprocess.run([*pip, *what], check=True, timeout=_STEP)
    empty = folder / "elsewhere"
    empty.mkdir()
    return Installed(environment / "bin" / "python", empty)


@pytest.fixture(scope="session")
def released(release: Release, installed: Installed) -> Release:
    """The release folder, complete."""
    write_bill(installed, release.bill, "--validate")
    files = [*(file for each in release.archives.values() for file in (each.sdist, each.wheel)), release.bill]
    release.sums.write_text(
        "".join(f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in files)
    )
    return release


def write_bill(installed: Installed, file: Path, validation: str = "--no-validate") -> None:
    """Write the bill of materials of an environment; with `--validate` it is compared with the schema of CycloneDX."""
    command = [
        str(Path(sys.executable).with_name("cyclonedx-py")),
        "environment",
        "--validate",
        "--output-reproducible",
    ]
    command += [
        "--pyproject",
        str(PROJECT / "bridge" / "pyproject.toml"),
        "--mc-type",
        "application",
        "--spec-version",
        "1.6",
    ]
    done = subprocess.run(
        [*command, "--output-file", str(file), str(installed.python)],
        capture_output=True,
        text=True,
        timeout=_STEP,
        check=False,
    )
    assert done.returncode == 0, done.stderr
