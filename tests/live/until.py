"""Waits for what no event reports: the state of a server, a counter of a running sidecar."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

LIMIT = 60.0
"""Seconds after which a test that waits for something has failed; no test measures time."""
_FIRST_PAUSE, _GROWTH, _LONGEST_PAUSE = 0.002, 1.25, 0.05


async def until(condition: Callable[[], bool | Awaitable[bool]], limit: float | None = None) -> None:
    """Look again and again until the condition, which may be asked of a server, holds; less often as time passes."""
    pause = _FIRST_PAUSE
    async with asyncio.timeout(LIMIT if limit is None else limit):  # tests on Spark change LIMIT
        while True:
            answer = condition()
            if answer if isinstance(answer, bool) else await answer:
                return
            await asyncio.sleep(pause)
            pause = min(pause * _GROWTH, _LONGEST_PAUSE)
