"""Rendered overlays, and real servers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.k8s.charts import CHART
from tests.k8s.rendering import OVERLAYS, PROJECT, Manifest, monitored
from tests.live.conftest import native_server, raw_peer

__all__ = ["native_server", "raw_peer"]


@pytest.fixture(params=list(OVERLAYS))
def overlay(request: pytest.FixtureRequest) -> str:
    """Each overlay's name."""
    name: str = request.param
    return name


@pytest.fixture
def manifests(overlay: str) -> tuple[Manifest, ...]:
    """What the overlay renders to, with the Prometheus operator's part."""
    return monitored(OVERLAYS[overlay])


@pytest.fixture
def application(tmp_path: Path) -> Path:
    """A chart with the bridge's as its dependency."""
    chart = tmp_path / "orders"
    shutil.copytree(PROJECT / "tests/k8s/app-chart", chart)
    shutil.copytree(CHART, chart / "charts/nats-bridge")
    return chart
