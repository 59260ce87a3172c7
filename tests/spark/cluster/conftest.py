"""One cluster for all tests here, and the package in the form in which it is sent to clusters."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.cluster.standalone import PATIENCE, StandaloneCluster

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """A master and two workers."""
    started = StandaloneCluster(tmp_path_factory.mktemp("cluster"))
    yield started
    started.close()


@pytest.fixture(scope="session")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, named .zip, as docs/spark.md says."""
    place = tmp_path_factory.mktemp("shipped")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=PATIENCE,
    )
    (wheel,) = place.glob("nats_bridge-*.whl")
    return Path(shutil.copy(wheel, place / "nats_bridge.zip"))
