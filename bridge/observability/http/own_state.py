"""The state of the sidecar in this process: checks, state, metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from nats_bridge.bridge.observability.http.checks import Check
from nats_bridge.bridge.observability.http.progress_watch import ProgressWatch
from nats_bridge.bridge.observability.http.status_document import (
    Process,
    SidecarState,
    liveness,
    readiness,
    startup,
    status_document,
)

__all__ = ["OwnState"]


class OwnState:
    """The state of a sidecar, for `bridge.observability.http.listener`.

    Args:
        sidecar: the sidecar.
        wedged_after: seconds without progress until a rule counts as wedged.

    Attributes:
        watch: detects rules that make no progress.
        exposition: renders the metrics; only with a listener.
    """

    exposition: Callable[[str], tuple[bytes, str]]

    def __init__(self, sidecar: SidecarState, wedged_after: float) -> None:
        self.watch = ProgressWatch(lambda: sidecar.seats, wedged_after)
        self._sidecar = sidecar
        self._began, self._began_at = datetime.now(UTC), time.monotonic()

    def start(self) -> None:
        """Start the watch for stalled rules."""
        self.watch.start()

    async def stop(self) -> None:
        """Stop watching."""
        await self.watch.stop()

    async def startup(self) -> list[Check]:
        """The checks of `/startupz`."""
        return startup(self._sidecar)

    async def liveness(self) -> list[Check]:
        """The checks of `/livez`."""
        return liveness(self._wedged)

    async def readiness(self) -> list[Check]:
        """The checks of `/readyz`."""
        return readiness(self._sidecar, self._wedged)

    async def status(self, *, history: bool) -> dict[str, Any]:
        """The whole state; without the rules' recent history if that is not wanted."""
        uptime = time.monotonic() - self._began_at
        process = Process(self._began, uptime, self.watch.longest_delay, self._wedged)
        return status_document(self._sidecar, process, history=history)

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        """The metrics as text, and its content type; `accept` is the request's header."""
        return self.exposition(accept)

    @property
    def _wedged(self) -> Mapping[str, float]:
        return self.watch.wedged()
