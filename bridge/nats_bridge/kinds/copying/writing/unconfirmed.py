"""Tracks operations in flight to a stream, and matches the stream's answers.

It has no I/O: operations go in and bytes to write come out; answers go in and decisions come out. `in_flight` accounts
for the messages. `pub_ack_requests` has the three ways to request PubAcks. This module begins with the cheapest way
that the target allows, changes to `EachMessage` when answers do not fit, and keeps that until nothing is in flight.

Its caller, `publishing`, writes the result of `add`, passes each read of answers to `take`, and the rest of it to
`sort_out`. If `sort_out` reports that the state is unclear, it writes the result of `request_again`. If something was
not stored, the recovery repeatedly decides about `first_unstored`.

```text
exclusive, target counts copies   LastOfGroup ──request_again──▶ EachMessage ─┐
ids are remembered for 20 s       SharedReply ──request_again──▶ EachMessage ─┤ nothing in flight: SharedReply
else, or keep_sequence            EachMessage                                 ┘ nothing in flight: EachMessage
```
"""

from __future__ import annotations

from nats_bridge.client.pub_ack import PubAck
from nats_bridge.client.waiting import ANSWER
from nats_bridge.client.wire import Delivered
from nats_bridge.errors import RuleRefusedError
from nats_bridge.kinds.copying.counters import CopyCounters
from nats_bridge.kinds.copying.target import Target
from nats_bridge.kinds.copying.writing.encoder import Operation
from nats_bridge.kinds.copying.writing.in_flight import Bundle, MessagesInFlight, operations_of
from nats_bridge.kinds.copying.writing.pub_ack_requests import (
    EachMessage,
    LastOfGroup,
    PubAckRequests,
    SharedReply,
    StoredAnswer,
)

_LONGEST_REMEMBERED = 30.0  # seconds in which messages may be sent again


class LostTrackError(Exception):
    """It is unknown which messages were stored; `str` has the reason."""


class Unconfirmed:
    """The operations in flight to one stream, and the present way to request PubAcks for them.

    Args:
        target: the stream.
        inbox: the prefix of reply subjects, including the last dot.
        counters: the counters to update.
        exclusive: whether no other entry writes to the target, and publications of other clients are received.
        keeps_sequence: whether every message must be stored under the sequence that is its name.

    Attributes:
        messages: the messages in flight, and the position up to which everything is stored.
    """

    def __init__(
        self, target: Target, inbox: bytes, counters: CopyCounters, *, exclusive: bool, keeps_sequence: bool
    ) -> None:
        self.messages = MessagesInFlight(counters)
        self._stream = target.name
        self._inbox = inbox
        self._keeps = keeps_sequence
        self._stored = StoredAnswer()
        # Sent again later than this, a message could be stored twice: the target forgets ids.
        self._remembered = min(target.window_ns / 4e9, _LONGEST_REMEMBERED)
        # If unclear messages cannot be sent again in time, each message requests its own PubAck.
        in_time = self._remembered >= ANSWER
        self._shares = in_time and not keeps_sequence
        self._requests: PubAckRequests = (
            LastOfGroup(self.messages, inbox, self._stored, keeps_sequence=keeps_sequence)
            if exclusive and target.counts_copies and in_time
            else self._for_shared_target()
        )

    def _for_shared_target(self) -> PubAckRequests:
        if self._shares:
            return SharedReply(self.messages, self._inbox, self._stored)
        return EachMessage(self.messages, self._inbox, self._stored, keeps_sequence=self._keeps)

    @property
    def relies_on_exclusivity(self) -> bool:
        """Whether confirmations are valid only as long as no other client writes to the stream."""
        return isinstance(self._requests, LastOfGroup)

    @property
    def sent_first(self) -> float:
        """The time when the first message in flight was sent; 0 if none is."""
        groups = self.messages.groups
        return groups[0].sent if groups else 0.0

    @property
    def answers_for_first(self) -> int:
        """The number of messages of the first group that have answers, if all of them share one reply subject."""
        return self._requests.answers_for_first if isinstance(self._requests, SharedReply) else 0

    # -- sending -----------------------------------------------------------------------------------------------------

    def add(self, messages: list[Operation] | Bundle, now: float) -> bytes:
        """Return what to write for messages that follow those in flight.

        Args:
            messages: with their names, without reply subjects.
            now: the loop's time.
        """
        if not self.messages.count and isinstance(self._requests, EachMessage):
            self._requests = self._for_shared_target()
        return self._requests.write(messages, now)

    def request_again(self, now: float) -> bytes:
        """Return what to write to learn of each message in flight, and of those whose confirmation may be wrong.

        Raises:
            LostTrackError: it was sent so long ago that it could be stored twice.
        """
        messages, since = self.messages, now - self._remembered
        if messages.groups and self.sent_first < since:
            raise LostTrackError("it is unknown what the target has stored, and it may have forgotten the ids")
        after = messages.last
        confirmed: list[Operation] = []
        for before, group in self._requests.recent(since):
            confirmed += operations_of(group)
            after = min(after, before)
        names = {name for name, _ in confirmed}
        messages.uncounted |= names
        operations = confirmed + messages.clear()
        messages.counters.asked_again += len(operations)
        self._requests = EachMessage(
            messages,
            self._inbox,
            self._stored,
            keeps_sequence=self._keeps,
            resent={name for name, _ in operations},
            after=after,
        )
        return self._requests.write(operations, now)

    def forget_names(self) -> None:
        """Start with new names, which may repeat earlier ones. Nothing may be in flight."""
        if isinstance(self._requests, LastOfGroup):
            self._requests.forget_recent()
        self.messages.forget_names()

    # -- answers -----------------------------------------------------------------------------------------------------

    def take(self, answers: list[Delivered], now: float) -> int:
        """Confirm messages that answers show as stored, as long as they have the expected form.

        Return how many were read.
        """
        return self._requests.take(answers, now)

    def sort_out(self, answers: list[Delivered], now: float) -> tuple[bool, bool]:
        """Handle the answers that `take` has not read.

        Returns:
            Whether messages must be sent again, and whether the target did not store something.

        Raises:
            LostTrackError: the answers do not show which messages are stored.
            RuleRefusedError: another stream answers, or sequences cannot be kept.
        """
        start = len(self._inbox)
        expected = {group.name for group in self.messages.groups}
        not_stored = False
        for subject, _, block, payload in answers:
            name = subject[start:]
            if name not in expected:
                continue  # of a message that was sent twice
            pub_ack = PubAck.parse(block, payload)
            self._check(name, pub_ack)
            not_stored |= pub_ack.kind not in ("stored", "duplicate")
            if pub_ack.kind == "stored":
                self._stored.learn(payload)
            self._requests.note(name, pub_ack)
        self._requests.settle(now)
        return self._requests.unclear, not_stored

    def _check(self, name: bytes, pub_ack: PubAck) -> None:
        if pub_ack.kind in ("stored", "duplicate") and pub_ack.stream != self._stream:
            raise RuleRefusedError(
                f"stream '{pub_ack.stream}' takes copies meant for '{self._stream}': their subjects overlap"
            )
        if self._keeps and pub_ack.sequence and pub_ack.sequence != int(name):
            raise RuleRefusedError(
                f"stream '{self._stream}' has message {name.decode()} of the source as {pub_ack.sequence}, so"
                f" sequences can be kept no longer: {self._reason_against_sequence(pub_ack)}"
            )
        if pub_ack.kind == "later" and not pub_ack.stream:
            # No responders: the stream has no leader, or it was deleted and may be recreated as another stream.
            raise LostTrackError(pub_ack.description)
        if pub_ack.kind == "stored" and pub_ack.sequence <= self.messages.last:
            raise LostTrackError("the target is a new stream, or lost the end of its store")

    def _reason_against_sequence(self, pub_ack: PubAck) -> str:
        if pub_ack.kind == "duplicate":
            return "its message id is that of an earlier message: shorten the stream's duplicate_window"
        if refusal := self._requests.refusal:
            name, refused = refusal
            return f"it refused message {name.decode()}: {refused.description} ({refused.err_code})"
        return "another client writes to that stream, or a change of leaders left messages out"

    # -- recovery, while each message requests its own PubAck
    # -----------------------------------------------------------

    @property
    def _each(self) -> EachMessage:
        assert isinstance(self._requests, EachMessage), "a message that was not stored is known by its own PubAck"
        return self._requests

    @property
    def all_answered(self) -> bool:
        """Whether there is a PubAck on every message in flight."""
        return self._each.all_answered

    def settle(self, now: float) -> None:
        """Confirm messages that have PubAcks, up to the first one that is unknown or not stored."""
        self._requests.settle(now)

    def first_unstored(self) -> tuple[Operation, PubAck]:
        """Return the first operation in flight, and its PubAck, which is forgotten.

        It is to be skipped or sent again.
        """
        operation = operations_of(self.messages.groups[0].messages)[0]
        return operation, self._each.pub_acks.pop(operation[0])

    @property
    def stores_later_ones(self) -> bool:
        """Whether a message after the first one in flight is already stored."""
        return any(pub_ack.kind == "stored" for pub_ack in self._each.pub_acks.values())

    def with_reply(self, operation: Operation) -> bytes:
        """Return the operation of a message with its own reply subject."""
        return self._requests.with_reply(operation)
