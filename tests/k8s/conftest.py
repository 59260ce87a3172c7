"""Rendered overlays, and real servers."""

from __future__ import annotations

import pytest

from tests.k8s.rendering import OVERLAYS, Manifest, monitored
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
