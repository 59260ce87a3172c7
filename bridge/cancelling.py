"""Ending tasks for certain."""

from __future__ import annotations

import asyncio
from typing import Any

__all__ = ["end_tasks"]

_PATIENCE = 0.2  # seconds until a cancellation counts as swallowed


async def end_tasks(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel tasks until they have ended, whatever they end with.

    Once is not enough: `asyncio.wait_for`, which nats-py uses for its requests, swallows a cancellation that
    comes together with the result (Python before 3.12), and the task would go on for ever.
    """
    ending = [task for task in tasks if task is not None]
    while left := [task for task in ending if not task.done()]:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=_PATIENCE)
    for task in ending:
        if not task.cancelled():
            task.exception()  # seen: asyncio has nothing to report later
