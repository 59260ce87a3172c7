"""The image, built once by a container engine, and real servers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.container.base_image import base_image, machine_architecture, wheels
from tests.container.engine import Engine, Image
from tests.live.conftest import enduring_peer, native_server, raw_peer

__all__ = ["enduring_peer", "native_server", "raw_peer"]

PROJECT = Path(__file__).resolve().parents[2]
DOCKERFILE = PROJECT / "Dockerfile"
BASE = "python:3.11-slim-bookworm"
_KEPT = PROJECT / "build" / "container"
_LOCKS = [PROJECT / "requirements" / name for name in ("build.lock", "run.lock")]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the architecture of the image."""
    parser.addoption("--architecture", default=machine_architecture(), help="of the image: amd64 or arm64")


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """The engine; what it has built is kept for the next run."""
    _KEPT.mkdir(parents=True, exist_ok=True)
    started = Engine(_KEPT / "store")
    yield started
    started.run("image", "unmount", "--all")


@pytest.fixture(scope="session")
def build(
    engine: Engine, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Image]:
    """`build(name, *options)`: what the Dockerfile makes."""
    architecture = pytestconfig.getoption("architecture")
    base = base_image(engine, BASE, architecture, _KEPT, _say)
    packages = wheels(_LOCKS, architecture, _KEPT, _say)
    # An index that is a folder: the same files, by the same hashes.
    index = tmp_path_factory.mktemp("index") / "pip.conf"
    index.write_text("[global]\nfind-links = /mnt\nno-index = true\n", "utf-8")
    given = (f"--volume={packages}:/mnt:ro", f"--volume={index}:/etc/pip.conf:ro", f"--build-arg=BASE={base}")

    def make(name: str, *options: str) -> Image:
        return engine.build(f"localhost/{name}", DOCKERFILE, PROJECT, *given, *options, architecture=architecture)

    return make


@pytest.fixture(scope="session")
def image(build: Callable[..., Image]) -> Image:
    """The image."""
    return build("nats-bridge", "--build-arg=REVISION=0123456")


@pytest.fixture(scope="session")
def root(image: Image) -> Path:
    """The image's files."""
    return image.mounted()


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
