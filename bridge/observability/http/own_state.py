"""The state of the sidecar in this process: checks, state, metrics."""

from __future__ import annotations

import asyncio
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
    """The state of a sidecar, as `bridge.observability.http.listener.Told` wants it.

    Args:
        sidecar: what is reported.
        wedged_after: seconds without progress until a rule counts as wedged.

    Attributes:
        watch: detects rules that make no progress.
        exposition: renders the metrics; given where there is a listener, which alone asks for them.
    """

    exposition: Callable[[str], tuple[bytes, str]]

    def __init__(self, sidecar: SidecarState, wedged_after: float) -> None:
        self.watch = ProgressWatch(lambda: sidecar.seats, wedged_after)
        self._sidecar = sidecar
        self._rendering = asyncio.Lock()
        self._began, self._began_at = datetime.now(UTC), time.monotonic()

    def start(self) -> None:
        """Start the watch for stalled rules."""
        self.watch.start()

    async def stop(self) -> None:
        """Look no more."""
        await self.watch.stop()

    async def startup(self) -> list[Check]:
        """What `/startupz` looks at."""
        return startup(self._sidecar)

    async def liveness(self) -> list[Check]:
        """What `/livez` looks at."""
        return liveness(self._wedged)

    async def readiness(self) -> list[Check]:
        """What `/readyz` looks at."""
        return readiness(self._sidecar, self._wedged)

    async def status(self, *, history: bool) -> dict[str, Any]:
        """The whole state; without the rules' recent history if that is not wanted."""
        uptime = time.monotonic() - self._began_at
        process = Process(self._began, uptime, self.watch.longest_delay, self._wedged)
        return status_document(self._sidecar, process, history=history)

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        """The metrics as text, and its content type; `accept` is the request's header."""
        # With many rules it takes a second or more, in which messages must not wait. One at a time is enough.
        async with self._rendering:
            return await asyncio.to_thread(self.exposition, accept)

    @property
    def _wedged(self) -> Mapping[str, float]:
        return self.watch.wedged()
