"""Sends requests with raw header blocks, and returns unparsed answers."""

import asyncio
from itertools import count

from nats_bridge.client.connection import Connection
from nats_bridge.client.operations import publication
from nats_bridge.client.wire import BatchSubscription, Delivered
from nats_bridge.client.write_fence import ALWAYS_OPEN, WriteFence

_NO_RESPONDERS = b"NATS/1.0 503"


class RawRequests:
    """Requests over one connection, any number of them pending."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._inbox = b""
        self._numbers = count(1)
        self._waiting: dict[bytes, asyncio.Future[Delivered | None]] = {}
        self._subscription: BatchSubscription | None = None

    async def open(self) -> None:
        """Subscribe to the answers."""
        inbox = self._connection.client.new_inbox()
        self._inbox = inbox.encode()
        self._subscription = await self._connection.client.subscribe_batches(f"{inbox}.*", self._answered)
        self._connection.on_disconnect(self.give_up)
        await self._connection.flush()

    async def close(self) -> None:
        """Unsubscribe, and stop waiting for answers."""
        self._connection.forget(self.give_up)
        self.give_up()
        if self._subscription is not None:
            await self._subscription.release()

    def send(
        self, subject: bytes, block: bytes, payload: bytes, fence: WriteFence = ALWAYS_OPEN
    ) -> asyncio.Future[Delivered | None]:
        """Write a request at once, on a live connection and under an open fence.

        Return the answer; None without one.
        """
        reply = b"%b.%d" % (self._inbox, next(self._numbers))
        answer = self._waiting[reply] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(lambda _: self._waiting.pop(reply, None))
        self._connection.client.write_raw(publication(subject, reply, block, payload), fence)
        return answer

    async def ask(
        self, subject: bytes, block: bytes, payload: bytes, *, within: float, fence: WriteFence = ALWAYS_OPEN
    ) -> Delivered | None:
        """Return the answer to a request; None without a connection, or without an answer within `within` seconds."""
        if not self._connection.client.is_connected:
            return None
        answer = self.send(subject, block, payload, fence)
        try:
            await asyncio.wait([answer], timeout=within)
            return answer.result() if answer.done() else None
        finally:
            answer.cancel()

    def give_up(self) -> None:
        """Answer every request that waits with None."""
        for waiting in list(self._waiting.values()):
            if not waiting.done():
                waiting.set_result(None)

    def _answered(self, batch: list[Delivered]) -> None:
        for message in batch:
            waiting = self._waiting.get(message[0])
            if waiting is not None and not waiting.done():
                is_unanswered = message[2].startswith(_NO_RESPONDERS) and not message[3]
                waiting.set_result(None if is_unanswered else message)
