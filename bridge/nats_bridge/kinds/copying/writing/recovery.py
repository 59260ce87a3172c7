"""Resolves messages in flight that a target did not store, in order and without I/O. `publisher` performs the steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from nats_bridge.client.pub_ack import PubAck
from nats_bridge.kinds.copying.encoder import Operation
from nats_bridge.kinds.copying.writing.publishing import Publishing

_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 1.0  # seconds between two tries on a full target


@dataclass(frozen=True, slots=True)
class AwaitAnswers:
    """Wait for another answer. Interrupt the round if none comes in time."""


@dataclass(frozen=True, slots=True)
class Decide:
    """Let the rule's policy decide about a permanently refused message; then call `Recovery.skip`."""

    operation: Operation
    pub_ack: PubAck


@dataclass(frozen=True, slots=True)
class Retry:
    """Wait for this many seconds, then write the result of `Recovery.again` for the operation.

    Attributes:
        pub_ack: the reason why the target does not store it.
        begins_waiting: whether the target took messages until now.
    """

    operation: Operation
    pause: float
    pub_ack: PubAck
    begins_waiting: bool


RecoveryStep: TypeAlias = AwaitAnswers | Decide | Retry


class Recovery:
    """Resolves messages in flight in order: sends them again, or lets the rule's policy reject them.

    Steps are done one after the other, until there is none. Each takes the PubAck of the first message in flight, so it
    must be performed before the next one is requested. If the connection is lost, or the round is over, drop the
    recovery without `skip` and `again`: the next round reads from the target which messages are stored.

    Args:
        publishing: the publisher's state, which is `recovering`.
    """

    def __init__(self, publishing: Publishing) -> None:
        self._publishing = publishing
        self._unconfirmed = publishing.unconfirmed
        # before the next try; zero as long as the target stores the messages that are sent again
        self._pause = _FIRST_PAUSE
        self._sent_again = b""  # the name of the message that was sent again last

    def next_step(self, now: float) -> RecoveryStep | None:
        """Return the next step; None if nothing is in flight any longer."""
        messages = self._unconfirmed.messages
        while messages.count:
            each = self._unconfirmed.each
            if not each.all_answered:
                return AwaitAnswers()
            each.settle(now)
            if not messages.count:
                break
            operation, pub_ack = each.first_unstored()
            if pub_ack.kind != "refused":
                return self._retry(operation, pub_ack)
            if operation[0] not in messages.uncounted:
                return Decide(operation, pub_ack)
            messages.uncounted.discard(operation[0])  # it was stored before the target changed
            self.skip()
        return None

    def _retry(self, operation: Operation, pub_ack: PubAck) -> Retry:
        if operation[0] == self._sent_again:
            self._pause = min(max(self._pause * 2, _FIRST_PAUSE), _LONGEST_PAUSE)
        elif self._sent_again:
            self._pause = 0
        self._sent_again = operation[0]
        begins_waiting = self._publishing.state != "full"
        self._publishing.happened("full")
        return Retry(operation, self._pause, pub_ack, begins_waiting)

    def skip(self) -> None:
        """Skip the first message, about which the policy has decided."""
        self._unconfirmed.messages.skip()

    def again(self, operation: Operation) -> bytes:
        """Return what to write to send a message again after its pause."""
        return self._unconfirmed.each.with_reply(operation)
