"""What holds for all tests: none depends on the speed of the machine, none meets other examples than the last time.

Set `HYPOTHESIS_PROFILE=explore` to look for new examples.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from conformance.servers import native_server

_CALM = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("any machine", **_CALM, derandomize=True)
settings.register_profile("explore", **_CALM)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "any machine"))


def pytest_configure(config: pytest.Config) -> None:
    """Of several processes (`--numprocesses`), each starts its servers on ports of its own."""
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):
        number, count = int(worker.removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        native_server.PORTS = native_server.PORTS[number::count]
