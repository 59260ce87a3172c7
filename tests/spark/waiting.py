"""Waiting for what Spark does: Java alone needs many seconds where others work on the machine, too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

PATIENCE = 600.0
"""Seconds after which a test that waits for Spark has failed; no test measures time."""


async def seen(condition: Callable[[], bool]) -> None:
    """Look now and then, not so often that Spark lacks the processor, until the condition holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110  # files and processes set no event
            await asyncio.sleep(0.02)
