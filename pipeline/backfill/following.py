"""How far a job is, seen at its target: while a task runs, Spark tells nothing of what it has done."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import contextmanager

from bridge.connection import Link
from bridge.errors import BridgeError
from pipeline.progress import Progress
from pipeline.source.loop_thread import LoopThread

__all__ = ["following"]

_LOOK = 1.0  # seconds


@contextmanager
def following(loop: LoopThread, target: Link, stream: str, progress: Progress) -> Iterator[None]:
    """Keep the progress true for the time of the block: what the target has stored since it began."""
    watcher = loop.run(_begun(target, stream, progress))
    try:
        yield
    finally:
        loop.run(_ended(watcher))


async def _begun(target: Link, stream: str, progress: Progress) -> asyncio.Task[None]:
    before = int((await target.api.stream_info(stream))["state"]["last_seq"])
    return asyncio.create_task(_follow(target, stream, before, progress))


async def _follow(target: Link, stream: str, before: int, progress: Progress) -> None:
    while True:
        await asyncio.sleep(_LOOK)
        with contextlib.suppress(BridgeError):
            progress.messages = int((await target.api.stream_info(stream))["state"]["last_seq"]) - before


async def _ended(watcher: asyncio.Task[None]) -> None:
    watcher.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watcher
