"""Reports when streams of an account are created, changed or deleted, or may have been during a disconnect."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nats_bridge.client.connection import Connection
from nats_bridge.client.tasks import happens

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription


_SUBJECTS = tuple(f"$JS.EVENT.ADVISORY.STREAM.{what}.*" for what in ("CREATED", "UPDATED", "DELETED"))


class StreamEvents:
    """Events of the streams of a connection's account. Several events between two calls count as one."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._changed = asyncio.Event()
        self._subscriptions: list[Subscription] = []

    async def open(self) -> None:
        """Begin to listen."""
        for subject in _SUBJECTS:
            self._subscriptions.append(await self._connection.client.subscribe(subject, cb=self._received))
        self._connection.on_reconnect(self._changed.set)

    async def close(self) -> None:
        """Stop listening."""
        self._connection.forget(self._changed.set)
        while self._subscriptions:
            subscription = self._subscriptions.pop()
            if not self._connection.client.is_closed:
                await subscription.unsubscribe()

    async def next(self, patience: float | None = None) -> None:
        """Wait for an event after the last call, at most `patience` seconds."""
        await happens(self._changed, within=patience)
        self._changed.clear()

    async def _received(self, advisory: Msg) -> None:
        if self._connection.api.reports(advisory.data):
            self._changed.set()
