"""What holds for all tests: tiers, derandomised examples, and ports of its own for each process.

`make test` leaves out the tests marked `exhaustive`, and tries few examples of each property; `--all` (`make test-all`)
runs everything. Set `HYPOTHESIS_PROFILE=explore` to look for new examples.
"""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from nats_conformance.native_servers import native_server

_CALM = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
# A property that needs more examples than others says how many times as many (`settings.default.max_examples`).
settings.register_profile("few", **_CALM, derandomize=True, max_examples=25)
settings.register_profile("all", **_CALM, derandomize=True, max_examples=50)
settings.register_profile("explore", **_CALM, max_examples=100)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--all`."""
    parser.addoption("--all", action="store_true", help="every test on every server version, not only make test's")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without `--all`, keep what `make test` runs."""
    if config.getoption("all"):
        return
    left_out = [item for item in items if item.get_closest_marker("exhaustive")]
    items[:] = [item for item in items if not item.get_closest_marker("exhaustive")]
    config.hook.pytest_deselected(items=left_out)


def pytest_collection_finish() -> None:
    """Keep the garbage collector from scanning every test again."""
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    """Choose how many examples; of several processes (`--numprocesses`), each starts servers on ports of its own."""
    gc.set_threshold(50_000, 20, 50)  # imports and collection make many objects and hardly any garbage
    profile = os.environ.get("HYPOTHESIS_PROFILE", "all" if config.getoption("all") else "few")
    settings.load_profile(profile)
    if profile != "explore":
        # Examples would depend on the modules that a process has loaded, and parsing all of them takes seconds.
        providers._get_local_constants = lambda: providers._local_constants
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):
        number, count = int(worker.removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        native_server.PORTS = native_server.PORTS[number::count]
