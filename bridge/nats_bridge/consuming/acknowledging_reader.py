"""A reader that acknowledges messages one by one, each when the caller has finished it.

It reads nothing again, because only its consumers can read a work queue. If deliveries are missing, the caller begins
another round, and the consumer first delivers all unacknowledged messages in order (`rule_consumer`). So within a
round, a message is delivered twice only if its acknowledgement was lost or is late.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import STREAM_NOT_FOUND
from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.ack_reply import AckReply
from nats_bridge.consuming.delivery_order import ConfirmAgain, Deliver, DeliveriesLost, Missing
from nats_bridge.consuming.lag import StreamPosition
from nats_bridge.consuming.reader import BatchSink, Reader
from nats_bridge.consuming.rule_consumer import RuleConsumer
from nats_bridge.errors import ApiError
from nats_bridge.observability.counters import ReaderCounters


class AcknowledgingReader(Reader):
    """Reads one stream through a durable consumer with `ack_policy: explicit`.

    Args:
        connection: the connection that holds the stream.
        consumer: the consumer to read through; its plan has the position `acknowledged`.
        sink: the receiver of the batches.
        failed: called once with the error that ends the rule.
        broken: called with the reason when the caller must begin another round.
    """

    def __init__(
        self,
        connection: Connection,
        consumer: RuleConsumer,
        sink: BatchSink,
        counters: ReaderCounters,
        failed: Callable[[BaseException], None],
        broken: Callable[[str], None],
    ) -> None:
        super().__init__(connection, consumer, sink, counters, failed)
        self._broken = broken
        self._unacknowledged: deque[tuple[int, bytes]] = deque()
        self._acknowledged = 0  # up to this sequence everything that came
        self._began_after = 0

    @property
    def stream_position(self) -> StreamPosition:
        """The position, from this consumer. Another one would add interest, and a work queue allows no second one."""
        return replace(super().stream_position, direct=True)

    def acknowledge(self, upto: int) -> int:
        """Acknowledge delivered messages up to a stream sequence. Return their number.

        Messages whose acknowledgement cannot be written now are delivered again.
        """
        replies = []
        while self._unacknowledged and self._unacknowledged[0][0] <= upto:
            sequence, reply = self._unacknowledged.popleft()
            replies.append(reply)
            self._acknowledged = max(self._acknowledged, sequence)
        return len(replies) if self._write(replies) else 0

    def _write(self, replies: list[bytes]) -> bool:
        replies = [reply for reply in replies if self.consumer.has_sent(reply)]
        if not replies or not self.connection.client.is_connected or not self._fence.is_open:
            return False
        self.connection.client.write_raw(b"".join([b"PUB %b 0\r\n\r\n" % reply for reply in replies]), self._fence)
        return True

    def _hand_on(self, batch: list[Delivered], last: int, *, again: bool = False) -> Any:
        self._unacknowledged += [(AckReply.parse(reply).stream_sequence, reply) for _, reply, _, _ in batch]
        return super()._hand_on(batch, last, again=again)

    async def _sort_out(self, batch: list[Delivered]) -> None:
        for step in self._order.sort_out_round(batch, self._began_after, self._acknowledged):
            match step:
                case Deliver(messages):
                    await self._hand_on_all(messages)
                case ConfirmAgain(replies):
                    self._write(replies)
                case DeliveriesLost():
                    self._lost()
                case _:
                    raise AssertionError("this reader reads nothing again")

    async def _catch_up(self, missing: Missing) -> None:
        self._lost()

    def _lost(self) -> None:
        self._counters.gaps += 1
        self._broken("deliveries of the source did not arrive")

    def _reconnected(self) -> None:
        self._counters.reconnects += 1
        self._broken("the connection to the source was lost")

    async def _begin(self, *, seeded: bool = False) -> None:
        order = self._order
        info = await self.consumer.take_over(None)
        if info is None:
            await self.consumer.create(self.handled)
            if self.plan.work_queue:
                order.handled = 0  # there it begins with the first message
        self._move_checkpoint(order.progress)
        self._began_after = order.handled
        order.next = int(info["delivered"]["consumer_seq"]) + 1 if info is not None else 1
        self._last_read = asyncio.get_running_loop().time()

    async def _check(self) -> None:
        await self._fence.opened()
        try:
            info = await self.consumer.info()
            edits = self.consumer.edits(info) if info is not None else []
        except ApiError as error:
            if error.err_code != STREAM_NOT_FOUND and not error.passing:
                raise
            self._broken(f"the consumer of the source cannot be asked ({error})")
            return
        if edits:
            self.consumer.unchanged_upto = self._order.checkpoint.handled
            self._say_edited(edits)
            self._broken("another client has changed the consumer of the source")
        elif info is None or not self.consumer.delivers_here(info):
            self._broken("the consumer of the source was deleted")
        elif self._is_silent and not info.get("push_bound"):
            self._broken("the consumer of the source accepts no subscription")
        else:
            self._last_read = asyncio.get_running_loop().time()
            if not self.consumer.is_within_limit:
                await self.consumer.keep_limit(info)
