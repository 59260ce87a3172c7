"""Decides the next action of a publisher of copies, and which messages are stored. `publisher` performs the actions.

The problem: operations have to be written in order, as fast as the target stores them, and each stored exactly once.
Usually this works. Sometimes a target is full, refuses a message permanently, or another client writes in between.

The idea: messages are pipelined up to a window. An answer other than "stored" begins a recovery. It goes through the
messages in flight in order, and treats the first one as its answer requires, until all are stored or skipped
(`recovery`). `PUBLISHING` draws the states. This module has no I/O and no clock.

`Unconfirmed` begins with the cheapest way to request PubAcks that the target allows (`pub_ack_requests`), changes to
`EachMessage` when answers do not fit, and keeps that until nothing is in flight.

```text
exclusive, target counts copies   LastOfGroup ──request_again──▶ EachMessage ─┐
ids are remembered for 20 s       SharedReply ──request_again──▶ EachMessage ─┤ nothing in flight: SharedReply
else, or keep_sequence            EachMessage                                 ┘ nothing in flight: EachMessage
```

Example: messages 4, 5 and 6 are in flight. The target has room for one more, and later gets room again.

```text
event                            state       what is to be done
send 4 5 6                       pipelined   write them
answers: stored, full, full      recovering  write 5 and 6 again, each with its own reply subject
answers: full, full              recovering  `Retry` 5 in 5 ms
                                 full
5 ms later                       full        write 5
answer: full                     full        `Retry` 5 in 10 ms
10 ms later                      full        write 5
answer: stored                   full        `Retry` 6 at once
answer: stored                   stepping    1,000 messages one by one, then pipelined again
```

Invariants:

* Nothing but the first message in flight is written while recovering.
* A message that was not stored is followed by none that was not in flight with it already.
* The recovery ends only with nothing in flight.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from nats_bridge.client.pub_ack import PubAck
from nats_bridge.client.waiting import ANSWER
from nats_bridge.client.wire import Delivered
from nats_bridge.errors import RuleRefusedError
from nats_bridge.kinds.copying.counters import CopyCounters
from nats_bridge.kinds.copying.encoder import Operation
from nats_bridge.kinds.copying.target import Target
from nats_bridge.kinds.copying.writing.in_flight import (
    Bundle,
    MessagesInFlight,
    Pipeline,
    Window,
    operations_of,
    size_of,
)
from nats_bridge.kinds.copying.writing.pub_ack_requests import (
    EachMessage,
    LastOfGroup,
    PubAckRequests,
    SharedReply,
)
from nats_bridge.states import StateTable

PublishingState: TypeAlias = Literal["pipelined", "stepping", "recovering", "full", "over"]
PublishingEvent: TypeAlias = Literal["not_stored", "full", "pipeline", "step", "over"]

PUBLISHING: StateTable[PublishingState, PublishingEvent] = StateTable(
    """
                 not_stored  full  pipeline   step      over
    pipelined    recovering  -     pipelined  stepping  over
    stepping     recovering  -     pipelined  stepping  over
    recovering   recovering  full  pipelined  stepping  over
    full         full        full  -          stepping  over
    over         over        over  over       over      over
    """
)
"""The states of a publisher.

* `pipelined`: a batch is written when it comes, as long as the window has room.
* `stepping`: one message is in flight at a time. A round begins in this state, until one message is stored, because the
  next round searches for gaps only after the oldest copy, or after the confirmed position. If the first messages were
  lost and later ones stored, as when a cluster changes its leader, no round would find them. It is also the state after
  a target was full, and near the limit of a target that refuses messages when it is full.
* `recovering`: the answers to everything in flight are awaited, and the first that was not stored is dealt with.
* `full`: like `stepping`, but the target stores nothing at the moment. It is sent the first message again and again.
* `over`: the round sends nothing more (`round`).
"""

_STEPS = 1000  # messages that are sent one by one after the target was full, before the pipeline opens again
_LONGEST_REMEMBERED = 30.0  # seconds in which messages may be sent again


@dataclass(frozen=True, slots=True)
class Terms:
    """The constraints on an entry's copies.

    Attributes:
        exclusive: whether this connection, without echo, is the only one of the rule that writes to the target.
        keeps_sequence: whether a copy stored under another sequence than its source's ends the rule.
        one_by_one: the number of messages to store first, each confirmed before the next one is sent.
    """

    exclusive: bool = False
    keeps_sequence: bool = False
    one_by_one: float = 0


@dataclass(frozen=True, slots=True)
class Transmit:
    """Write these bytes if connected: they request answers again, and their ids keep them harmless."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Recover:
    """Begin the recovery, unless the round is over."""


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Interrupt the round, because the state of the target is unknown."""

    reason: str


@dataclass(frozen=True, slots=True)
class Fail:
    """End the rule."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Advanced:
    """More messages are confirmed. The oldest was sent at this time of the loop."""

    sent: float


Action: TypeAlias = Transmit | Recover | Interrupt | Fail | Advanced


class LostTrackError(Exception):
    """It is unknown which messages were stored; `str` has the reason."""


class Unconfirmed:
    """The operations in flight to one stream, and the present way to request PubAcks for them.

    Args:
        inbox: the prefix of reply subjects, including the last dot.
        exclusive: whether no other entry writes to the target, and publications of other clients are received.
        keeps_sequence: whether every message must be stored under the sequence that is its name.

    Attributes:
        messages: the messages in flight, and the position up to which everything is stored.
        target_is_shorter: whether an answer has shown that the target lost its end, or is a new stream.
    """

    def __init__(
        self, target: Target, inbox: bytes, counters: CopyCounters, *, exclusive: bool, keeps_sequence: bool
    ) -> None:
        self.messages = MessagesInFlight(counters)
        self.target_is_shorter = False
        self._pipeline = Pipeline(self.messages, inbox, keeps_sequence)
        self._stream = target.name
        # Sent again later than this, a message could be stored twice: the target forgets ids.
        self._remembered = min(target.window_ns / 4e9, _LONGEST_REMEMBERED)
        # If unclear messages cannot be sent again in time, each message requests its own PubAck.
        in_time = self._remembered >= ANSWER
        self._shares = in_time and not keeps_sequence
        self._requests: PubAckRequests = (
            LastOfGroup(self._pipeline) if exclusive and target.counts_copies and in_time else self._for_shared_target()
        )

    def _for_shared_target(self) -> PubAckRequests:
        return SharedReply(self._pipeline) if self._shares else EachMessage(self._pipeline)

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
        self._requests = EachMessage(self._pipeline, [name for name, _ in operations], after)
        return self._requests.write(operations, now)

    def forget_names(self) -> None:
        """Start with new names, which may repeat earlier ones. Nothing may be in flight."""
        if isinstance(self._requests, LastOfGroup):
            self._requests.forget_recent()
        self.messages.forget_names()

    # -- answers -----------------------------------------------------------------------------------------------------

    def take(self, answers: list[Delivered], now: float) -> int:
        """Confirm messages by answers, as long as these have the expected form. Return the number of those."""
        return self._requests.take(answers, now)

    def sort_out(self, answers: list[Delivered], now: float) -> tuple[bool, bool]:
        """Handle the answers that `take` has not read.

        Returns:
            Whether messages must be sent again, and whether the target did not store something.

        Raises:
            LostTrackError: the answers do not show which messages are stored.
            RuleRefusedError: another stream answers, or sequences cannot be kept.
        """
        start = len(self._pipeline.inbox)
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
                self._pipeline.stored.learn(payload)
            self._requests.note(name, pub_ack)
        self._requests.settle(now)
        return self._requests.unclear, not_stored

    def _check(self, name: bytes, pub_ack: PubAck) -> None:
        if pub_ack.kind in ("stored", "duplicate") and pub_ack.stream != self._stream:
            raise RuleRefusedError(
                f"stream '{pub_ack.stream}' takes copies meant for '{self._stream}': their subjects overlap"
            )
        if self._pipeline.keeps_sequence and pub_ack.sequence and pub_ack.sequence != int(name):
            raise RuleRefusedError(
                f"stream '{self._stream}' has message {name.decode()} of the source as {pub_ack.sequence}, so"
                f" sequences can be kept no longer: {self._reason_against_sequence(pub_ack)}"
            )
        if pub_ack.kind == "later" and not pub_ack.stream:
            # No responders: the stream has no leader, or it was deleted and may be recreated as another stream.
            raise LostTrackError(pub_ack.description)
        if pub_ack.kind == "stored" and pub_ack.sequence <= self.messages.last:
            self.target_is_shorter = True
            raise LostTrackError("the target is a new stream, or lost the end of its store")

    def _reason_against_sequence(self, pub_ack: PubAck) -> str:
        if pub_ack.kind == "duplicate":
            return "its message id is that of an earlier message: shorten the stream's duplicate_window"
        if refusal := self._requests.refusal:
            name, refused = refusal
            return f"it refused message {name.decode()}: {refused.description} ({refused.err_code})"
        return "another client writes to that stream, or a change of leaders left messages out"

    @property
    def each(self) -> EachMessage:
        """The present way to request PubAcks, while something is dealt with that was not stored."""
        assert isinstance(self._requests, EachMessage), "a message that was not stored is known by its own PubAck"
        return self._requests


class Publishing:
    """The state of one publisher.

    Args:
        inbox: the prefix of reply subjects, including the last dot.
        terms: the constraints on the copies.
        window: how much may be in flight.

    Attributes:
        unconfirmed: the messages in flight.
    """

    def __init__(self, target: Target, inbox: bytes, counters: CopyCounters, terms: Terms, window: Window) -> None:
        self.unconfirmed = Unconfirmed(
            target, inbox, counters, exclusive=terms.exclusive, keeps_sequence=terms.keeps_sequence
        )
        self.window = window
        self.counters = counters
        self.state: PublishingState = "stepping" if terms.one_by_one else "pipelined"
        self._steps = terms.one_by_one  # messages that are still to be stored one by one, once nothing is wrong
        self._is_bounded = target.full_is_refused
        self._room = target.room if target.full_is_refused else (math.inf, math.inf)
        self._answers = 0  # the number of answers so far
        self._answers_before = -1  # the number of answers at the last check; -1 if nothing was in flight

    @property
    def has_work(self) -> bool:
        """Whether something is in flight."""
        return self.unconfirmed.messages.count > 0

    @property
    def recovers(self) -> bool:
        """Whether something in flight was not stored, and is being dealt with."""
        return self.state in ("recovering", "full")

    def happened(self, event: PublishingEvent) -> None:
        """Move to the next state.

        Raises:
            IllegalTransitionError: the event must not happen now.
        """
        self.state = PUBLISHING.after(self.state, event)

    # -- sending -----------------------------------------------------------------------------------------------------

    def may_write(self, messages: list[Operation] | Bundle) -> bool:
        """Return whether messages may be written now, all of them."""
        return self.state == "pipelined" and (not self._is_bounded or self._fits(messages))

    def write(self, messages: list[Operation] | Bundle, now: float) -> bytes:
        """Return what to write for messages, which are in flight from now on."""
        self.window.sent(now, first=not self.has_work)
        if self._is_bounded:
            # Slightly more than these bytes is stored, so count them twice.
            self._room = (self._room[0] - len(messages), self._room[1] - 2 * size_of(messages))
        return self.unconfirmed.add(messages, now)

    def is_full_with(self, following: int) -> bool:
        """Return whether the window has no room for this many more messages."""
        messages, window = self.unconfirmed.messages, self.window
        return messages.count + following > window.messages or messages.size >= window.size

    @property
    def has_room(self) -> bool:
        """Whether enough of the window is free to continue sending."""
        messages, window = self.unconfirmed.messages, self.window
        return messages.count <= window.messages * 7 // 8 and messages.size <= window.size * 7 // 8

    def portion(self, pending: deque[Operation]) -> list[Operation]:
        """Take the waiting messages that may be written next: all of them, or one."""
        if self.may_write(everything := list(pending)):
            pending.clear()
            return everything
        if self.state == "pipelined":
            self._steps = _STEPS
        self.happened("step")
        return [pending.popleft()]

    def stepped(self) -> bool:
        """Note that one message was settled. Return whether the caller must determine the target's free room."""
        if self.state != "stepping":
            return False
        self._steps -= self.unconfirmed.messages.has_stored
        if not self._steps:
            self.happened("pipeline")
        return self._is_bounded and not self._steps

    def set_room(self, room: tuple[float, float]) -> None:
        """Note the room of the target in messages and bytes; only for targets that refuse messages when full."""
        self._room = room

    def recovered(self) -> bool:
        """Note that nothing is in flight after a recovery. Return whether the target was full."""
        was_full = self.state == "full"
        if was_full:
            self._steps = max(self._steps, _STEPS)
        self.happened("step" if self._steps else "pipeline")
        return was_full

    def _fits(self, messages: list[Operation] | Bundle) -> bool:
        return len(messages) <= self._room[0] and size_of(messages) * 2 <= self._room[1]

    # -- answers -----------------------------------------------------------------------------------------------------

    def answered(self, answers: list[Delivered], now: float) -> Sequence[Action]:
        """Process the target's answers of one read. Return the actions in order."""
        self._answers += len(answers)
        unconfirmed = self.unconfirmed
        messages, sent = unconfirmed.messages, unconfirmed.sent_first
        confirmed, count, size = messages.last_confirmed, messages.count, messages.size
        done = 0 if self.recovers else unconfirmed.take(answers, now)
        if messages.count < count:
            self.window.confirmed(count - messages.count, size - messages.size, sent, now)
        actions = self._sort_out(answers[done:], now) if done < len(answers) else ()
        return actions if messages.last_confirmed == confirmed else (*actions, Advanced(sent))

    def _sort_out(self, answers: list[Delivered], now: float) -> Sequence[Action]:
        """Handle answers that are not simply "stored" for the next message or group."""
        try:
            unclear, not_stored = self.unconfirmed.sort_out(answers, now)
        except LostTrackError as error:
            return (Interrupt(str(error)),)
        except RuleRefusedError as error:
            return (Fail(error),)
        actions = self._request_again(now) if unclear else ()
        if not_stored and not self.recovers:
            self.happened("not_stored")
            return (*actions, Recover())
        return actions

    def request_each(self, now: float) -> Sequence[Action]:
        """Request the PubAck of each message from now on: another client writes, or may."""
        return self._request_again(now) if self.unconfirmed.relies_on_exclusivity else ()

    def _request_again(self, now: float) -> Sequence[Action]:
        try:
            data = self.unconfirmed.request_again(now)
        except LostTrackError as error:
            return (Interrupt(str(error)),)
        return (Transmit(data),) if data else ()

    def answers_are_overdue(self) -> bool:
        """Return whether no answer has come since the last check, although one was due."""
        overdue = self.has_work and self._answers == self._answers_before and not self.recovers
        self._answers_before = self._answers if self.has_work else -1
        return overdue
