"""Keeps the stream from taking a message for a duplicate: two may have one id, stored long after each other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

_TOGETHER: Final = 50_000


class RememberedIds:
    """The ids that the stream may remember.

    Args:
        settled: waits until everything that was sent is stored.
        forgotten: waits until the stream has forgotten an id, and so all that it has stored before.
    """

    def __init__(self, settled: Callable[[], Awaitable[None]], forgotten: Callable[[bytes], Awaitable[None]]) -> None:
        self._settled = settled
        self._forgotten = forgotten
        self._young: dict[bytes, None] = {}  # in the order of sending
        self._old: dict[bytes, None] = {}

    def __contains__(self, message_id: bytes) -> bool:
        return message_id in self._young or message_id in self._old

    async def add(self, message_id: bytes) -> None:
        """Note an id before it is sent. Wait if the stream would treat it as a duplicate."""
        if message_id in self:
            await self._settled()
            await self._forgotten(message_id)
            self._young.pop(message_id, None)
        elif len(self._young) >= _TOGETHER:
            await self._settled()
            if self._old:
                await self._forgotten(next(reversed(self._old)))
            self._old, self._young = self._young, {}
        self._old.pop(message_id, None)
        self._young[message_id] = None
