"""Noticing that a file has other content, also where only a link on the way to it is put in another place."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

__all__ = ["changes_of", "content_hash"]

_LOOK = 1.0  # seconds between two looks


def content_hash(path: Path) -> str | None:
    """The SHA-256 of a file's content, wherever links lead to it; None while it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


async def changes_of(path: Path) -> AsyncIterator[str]:
    """The hash of the file's content, each time that two reads in a row saw the same; never ends.

    Kubernetes swaps the link `..data` on the way to the file, editors write it bit by bit: content that two looks agree
    on is whole.
    """
    before: str | None = None
    while True:
        await asyncio.sleep(_LOOK)
        now = await asyncio.to_thread(content_hash, path)
        if now is not None and now == before:
            yield now
        before = now
