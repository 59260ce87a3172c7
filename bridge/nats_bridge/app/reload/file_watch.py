"""Detects changes of a file's content, also through a replaced symbolic link on its path."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

from nats_bridge.client.waiting import EVERY_SECOND


def content_hash(path: Path) -> str | None:
    """Return the SHA-256 of a file's content, following links; None while it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


async def changes_of(path: Path) -> AsyncIterator[str]:
    """Yield the hash of the file's content whenever two reads in a row agree. Never ends.

    Kubernetes replaces the link `..data` on the file's path, editors write it bit by bit: content that two reads agree
    on is complete.
    """
    before: str | None = None
    while True:
        await asyncio.sleep(EVERY_SECOND)
        now = await asyncio.to_thread(content_hash, path)
        if now is not None and now == before:
            yield now
        before = now
