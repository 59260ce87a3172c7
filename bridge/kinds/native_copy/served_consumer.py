"""Serves one consumer: forwards its deliveries to the server that copies.

Nothing is delivered before the answer to the server's request, nor before the server has subscribed to the deliver
subject, which 2.9 does before it asks and newer servers when they have the answer: what comes earlier would be lost.
What waits, and what is written and not yet handled by the server, is bounded by the consumer's flow control:
it forwards the requests in order with the messages, and only the server's own answer lets the consumer send more.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from nats_bridge.bridge.client.leaf_protocol import message
from nats_bridge.bridge.client.wire import BatchSubscription, Delivered, WireClient
from nats_bridge.bridge.kinds.native_copy.encoder import NativeEncoder, UndeliverableError
from nats_bridge.bridge.observability.rule_metrics import Backlog, RuleMetrics

_STALLED: Final = re.compile(rb"(?<=\nNats-Consumer-Stalled: )\S+")
_LAST: Final = re.compile(rb"(?<=\nNats-Last-Consumer: )[0-9]+")


class ServedConsumer:
    """One consumer.

    Args:
        deliver: the subject that the server wants deliveries on.
        flow_control: put before the subjects on which flow control is answered; ends with a dot.
        encoder: the rule's.
        write: writes to the server.
        failed: called with what cannot be delivered.
        metrics: the rule's.
        backlog: what the stream still holds for the rule.
    """

    def __init__(
        self,
        deliver: bytes,
        flow_control: bytes,
        encoder: NativeEncoder,
        write: Callable[[bytes], None],
        failed: Callable[[UndeliverableError], None],
        metrics: RuleMetrics,
        backlog: Backlog,
    ) -> None:
        self.deliver = deliver
        self.answered = False  # whether the server has the answer to its request
        self.wanted = False  # whether it has subscribed
        self._flow_control = flow_control
        self._head = deliver + b" "
        self._encoder = encoder
        self._write = write
        self._failed = failed
        self._metrics = metrics
        self._backlog = backlog
        self._left_out = 0
        self._waiting: list[bytes] = []
        self._subscription: BatchSubscription | None = None

    async def open(self, client: WireClient) -> str:
        """Subscribe to an inbox and return it: there the consumer is to deliver."""
        inbox = client.new_inbox()
        self._subscription = await client.subscribe_batches(inbox, self._on_batch, self._on_control)
        return inbox

    async def close(self) -> None:
        """Take nothing more; the consumer's server removes it, because it has no subscriber."""
        subscription, self._subscription = self._subscription, None
        self._waiting.clear()
        if subscription is not None:
            await subscription.release()

    def send_waiting(self) -> None:
        """Send what waits, as soon as the server accepts it."""
        if self.answered and self.wanted and self._waiting:
            waiting, self._waiting = self._waiting, []
            self._write(b"".join(waiting))

    def _on_batch(self, batch: list[Delivered]) -> None:
        if self._subscription is None:
            return
        stored_ns = self._metrics.took(batch, self._backlog)
        out: list[bytes] = []
        try:
            self._left_out = self._encoder.run(batch, self._head, self._left_out, out)
        except UndeliverableError as error:
            self._failed(error)
        self._send(b"".join(out))
        self._metrics.arrived(stored_ns)
        self._metrics.progressed()

    def _on_control(self, reply: bytes, block: bytes) -> None:
        if reply:
            reply = self._flow_control + reply
        else:
            block = _STALLED.sub(lambda found: self._flow_control + found[0], block)
            if self._left_out:
                block = _LAST.sub(lambda found: b"%d" % (int(found[0]) - self._left_out), block)
        self._send(message(self.deliver, reply, block, b""))

    def _send(self, operations: bytes) -> None:
        if self.answered and self.wanted and not self._waiting:
            self._write(operations)
        else:
            self._waiting.append(operations)
