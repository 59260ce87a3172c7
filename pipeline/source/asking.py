"""Reading a stream without a consumer: each sequence is requested singly.

A work queue gives up what any consumer is sent, also one that servers use among themselves, if no other consumer wants
it; and a stream for interest keeps what one wants (2.10.27, 2.15.1). A request for a message does neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final

from nats_bridge.bridge.replication import Connection, Delivered
from nats_bridge.pipeline.errors import PipelineError
from nats_bridge.pipeline.source.arrived import Arrived
from nats_bridge.transforms.republish import StoredMessage
from nats_bridge.transforms.subject import matches

_TOGETHER: Final = 256  # pending requests
_NOT_TEXT: Final = "\ufffd".encode()


@dataclass(frozen=True, slots=True)
class Asking:
    """How to ask.

    Attributes:
        connection: an open connection.
        stream: the stream's name.
        filters: only these subjects; none for all.
    """

    connection: Connection
    stream: str
    filters: tuple[str, ...]

    async def between(self, first: int, last: int) -> AsyncGenerator[Arrived, None]:
        """The messages with first <= sequence <= last that still exist, in order.

        Raises:
            ApiError: the server refuses, or does not answer.
            PipelineError: a subject is not UTF-8, which the answers cannot hold.
        """
        api = self.connection.api
        patterns = [pattern.encode() for pattern in self.filters]
        at = first
        while at <= last:
            following = await api.next_message(self.stream, ">", at)  # past what is not there
            if following is None or following[0] > last:
                return
            at = following[0]
            end = min(last, at + _TOGETHER - 1)
            found = await asyncio.gather(*[api.stored_message(self.stream, one) for one in range(at, end + 1)])
            at = end + 1
            wanted = [
                self._delivered(message)
                for message in found
                if message is not None and (not patterns or any(matches(message.subject, one) for one in patterns))
            ]
            if wanted:
                yield Arrived.of(wanted)

    def _delivered(self, message: StoredMessage) -> Delivered:
        if _NOT_TEXT in message.subject:
            raise PipelineError(
                f"stream '{self.stream}': the subject of message {message.sequence} is not UTF-8: of a stream whose"
                " consumers decide what it keeps, such a message cannot be read without taking it"
            )
        reply = b"$JS.ACK.%b.asked.1.%d.1.%d.0" % (self.stream.encode(), message.sequence, message.time_ns)
        return message.subject, reply, message.header_block, message.payload
