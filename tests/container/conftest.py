"""The image, built once, and real servers."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from tests.container.dockerfile import Dockerfile, parse
from tests.container.image_build import Image, build
from tests.container.image_root import base_image
from tests.live.conftest import native_server, raw_peer

__all__ = ["native_server", "raw_peer"]

PROJECT = Path(__file__).resolve().parents[2]
_KEPT = PROJECT / "build" / "container"
_LOCKS = ("requirements/build.lock", "requirements/run.lock")


@pytest.fixture(scope="session")
def dockerfile() -> Dockerfile:
    return parse((PROJECT / "Dockerfile").read_text("utf-8"))


@pytest.fixture(scope="session")
def base(dockerfile: Dockerfile) -> Path:
    """The root folder of the base image; Debian's packages are fetched for the first run only."""
    _KEPT.mkdir(parents=True, exist_ok=True)
    return base_image(dockerfile.arguments["BASE"], _KEPT, report=_say)


@pytest.fixture(scope="session")
def wheels() -> Path:
    """What the lock files name, downloaded: the image's commands run without a network."""
    locks = [PROJECT / lock for lock in _LOCKS]
    digest = hashlib.sha256(b"".join(lock.read_bytes() for lock in locks)).hexdigest()[:16]
    folder = _KEPT / f"wheels-{digest}"
    done = folder / ".complete"
    if not done.exists():
        _say("downloading what the lock files name")
        for lock in locks:
            options = ["--quiet", "--require-hashes", "--only-binary", ":all:", "--no-binary", "nkeys"]
            command = [
                sys.executable,
                "-m",
                "pip",
                "download",
                *options,
                "--dest",
                str(folder),
                "--requirement",
                str(lock),
            ]
            subprocess.run(command, check=True, timeout=600)
        done.touch()
    return folder


@pytest.fixture(scope="session")
def image(dockerfile: Dockerfile, base: Path, wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The image that the Dockerfile's own instructions make."""
    folder = tmp_path_factory.mktemp("image")
    folder.chmod(0o755)  # pytest's are for one user only; another one runs the image
    for parent in (folder, *folder.parents):
        if parent.is_relative_to(tmp_path_factory.getbasetemp()):
            parent.chmod(0o755)
    return build(dockerfile, PROJECT, base, wheels, folder)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
