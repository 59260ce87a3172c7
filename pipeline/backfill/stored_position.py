"""How far a backfill has come, told by the stream that stores its results.

For watching only: a task that reads a history without Spark has no rows that Spark could count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from nats_bridge.bridge.client.connection import Link
from nats_bridge.pipeline.source.loop_thread import LoopThread
from nats_bridge.transforms.source_record import SourceRecord

__all__ = ["StoredPosition"]

_PATIENCE: Final = 2.0
"""Seconds for one look; who watches does not wait for servers."""


@dataclass(slots=True)
class StoredPosition:
    """Asks for the newest result; may be called from any thread.

    Attributes:
        loop: where the connection lives.
        link: the connection that holds the stream.
        stream: the stream that stores the results.
        record_of: from a result's header block to the record of the message it was made of; None for what somebody
            else stored.
        first: where the history begins.
        messages: how many of its sequences are done, as far as was seen.
    """

    loop: LoopThread
    link: Link
    stream: str
    record_of: Callable[[bytes], SourceRecord | None]
    first: int
    messages: int = 0

    def __call__(self) -> int:
        """How many sequences of the history are done.

        Raises:
            TimeoutError: the server is slow.
            BridgeError: it is away, or refuses.
        """
        block = self.loop.run(self._newest())
        record = self.record_of(block) if block else None
        if record is not None:
            self.messages = max(self.messages, record.sequence - self.first + 1)
        return self.messages

    async def _newest(self) -> bytes | None:
        async with asyncio.timeout(_PATIENCE):
            info = await self.link.api.stream_info(self.stream)
            last = int(info["state"]["last_seq"])
            stored = await self.link.api.stored_message(self.stream, last) if last else None
        return stored.header_block if stored else None
