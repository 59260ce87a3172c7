"""Publishes messages to a stream that stores no others, so that each is stored under the sequence that is its name.

Messages are written as they come, up to a window of unconfirmed ones. All messages of one write request their PubAcks
with one reply subject, because a server is faster with a reply subject that it has just seen. The stream answers in
order. As long as each answer has the next sequence, every message is in its place. Anything else ends the publishing:
with an error if that message cannot be stored, otherwise with an interruption, after which the caller reads the end of
the stream.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from nats_bridge.client.connection import Connection
from nats_bridge.client.pub_ack import PubAck, StoredAnswer
from nats_bridge.client.waiting import ANSWER
from nats_bridge.client.wire import Delivered
from nats_bridge.kinds.copying.writing.in_flight import LEAST, LEAST_SIZE
from nats_bridge_spark.errors import RowError
from nats_bridge_spark.row_bundle import RowBundle

_MOST_UNSENT = 1 << 20  # bytes in the socket's buffer before the next messages wait


class InterruptedPublishingError(Exception):
    """It is unknown which messages were stored; `str` has the reason."""


class SequencedPublishing:
    """The messages in flight to one stream; created by `publishing`.

    Attributes:
        confirmed: the last sequence that is known to be stored.
    """

    def __init__(self, connection: Connection, stream: str, last: int) -> None:
        self.confirmed = last
        self._connection = connection
        self._stream = stream
        self._inbox = connection.client.new_inbox().encode()
        self._in_flight: deque[tuple[int, int]] = deque()  # for each write: its last sequence, and its bytes
        self._size = 0
        self._sent = last
        self._stored = StoredAnswer()
        self._error: Exception | None = None
        self._changed = asyncio.Event()

    async def send(self, messages: RowBundle) -> None:
        """Publish messages whose names follow the previous ones. Returns when they are in flight.

        Raises:
            RowError: the stream does not take a message, or has stored it under another sequence.
            InterruptedPublishingError: it is unknown which messages were stored.
        """
        client = self._connection.client
        self._check()
        self._sent = messages.names[-1]
        size = messages.size
        self._in_flight.append((self._sent, size))
        self._size += size
        client.write_raw(messages.written(b"%b.%d" % (self._inbox, self._sent)))
        if client.unsent_bytes > _MOST_UNSENT:
            with suppress(ConnectionError):  # which the next check finds
                await client.drained()
        while self._sent - self.confirmed > LEAST or self._size > LEAST_SIZE:
            await self._answer()

    async def settled(self) -> None:
        """Wait until everything is stored. Raises the errors of `send`."""
        while self.confirmed < self._sent:
            await self._answer()

    async def _answer(self) -> None:
        self._check()
        self._changed.clear()
        try:
            async with asyncio.timeout(ANSWER):
                await self._changed.wait()
        except TimeoutError:
            raise InterruptedPublishingError("no answers") from None

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if not self._connection.client.is_connected:
            raise InterruptedPublishingError("the connection is lost")

    def _disconnected(self) -> None:
        self._error = self._error or InterruptedPublishingError("the connection is lost")
        self._changed.set()

    def _on_answers(self, answers: list[Delivered]) -> None:
        payloads = [payload for *_, payload in answers]
        expected = self.confirmed + len(answers)
        if self._stored.repeated.fullmatch(b"".join(payloads)) and payloads[-1].endswith(b":%d}" % expected):
            self.confirmed = expected
        else:
            for _, _, block, payload in answers:
                self._take(PubAck.parse(block, payload), payload)
        while self._in_flight and self._in_flight[0][0] <= self.confirmed:
            self._size -= self._in_flight.popleft()[1]
        self._changed.set()

    def _take(self, pub_ack: PubAck, payload: bytes) -> None:
        """Process one answer, if not all are as usual."""
        if self._error is not None:
            return
        sequence, place = self.confirmed + 1, f"stream '{self._stream}'"
        if pub_ack.kind == "stored" and pub_ack.sequence == sequence and pub_ack.stream == self._stream:
            self.confirmed = sequence
            self._stored.learn(payload)
        elif pub_ack.kind == "later":
            self._error = InterruptedPublishingError(pub_ack.description)
        elif pub_ack.kind == "refused":
            self._error = RowError(
                f"{place}: refuses message {sequence}: {pub_ack.description} ({pub_ack.err_code}); delete the stream"
                " before it is restored again"
            )
        else:
            self._error = RowError(
                f"{place}: has message {sequence} as {pub_ack.sequence}, so sequences can be kept no longer: another"
                " client has written to it; delete the stream before it is restored again"
            )


@asynccontextmanager
async def publishing(connection: Connection, stream: str, last: int) -> AsyncIterator[SequencedPublishing]:
    """Publish to a stream that ends at a sequence. Unconfirmed messages at the end stay unknown."""
    made = SequencedPublishing(connection, stream, last)
    subscription = await connection.client.subscribe_batches(
        f"{made._inbox.decode()}.*", made._on_answers, lambda *_: None
    )
    connection.on_disconnect(made._disconnected)
    try:
        if not await connection.flush():  # raw writes would overtake the subscription
            raise InterruptedPublishingError("the connection is lost")
        yield made
    finally:
        connection.forget(made._disconnected)
        await subscription.release()
