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
    """The packages in one archive, as docs/spark.md says."""
    place = tmp_path_factory.mktemp("shipped")
    packages = [f"./{folder}" for folder in ("transforms", "bridge", "pipeline")]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run(
        [*pip, "--target", str(place / "sent"), *packages], cwd=ROOT, check=True, capture_output=True, timeout=PATIENCE
    )
    return Path(shutil.make_archive(str(place / "nats_bridge"), "zip", place / "sent"))
