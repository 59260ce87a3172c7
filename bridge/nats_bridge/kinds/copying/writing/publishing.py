"""Decides the next action of a publisher of copies. It has no I/O and no clock; `publisher` performs the actions.

The problem: operations have to be written in order, as fast as the target stores them, and each stored exactly once.
Usually this works. Sometimes a target is full, refuses a message permanently, or another client writes in between.

The idea: messages are pipelined up to a window. An answer other than "stored" begins a recovery. It goes through the
messages in flight in order, and treats the first one as its answer requires, until all are stored or skipped.
`PUBLISHING` draws the states.

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
from nats_bridge.client.wire import Delivered
from nats_bridge.errors import RuleRefusedError
from nats_bridge.kinds.copying.counters import CopyCounters
from nats_bridge.kinds.copying.target import Target
from nats_bridge.kinds.copying.writing.encoder import Operation
from nats_bridge.kinds.copying.writing.in_flight import Bundle, Window, size_of
from nats_bridge.kinds.copying.writing.unconfirmed import LostTrackError, Unconfirmed
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
* `over`: the round sends nothing more (`round_life`).
"""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 1.0  # seconds between two tries on a full target
_STEPS = 1000  # messages that are sent one by one after the target was full, before the pipeline opens again


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


class Publishing:
    """The state of one publisher.

    Args:
        target: the stream that receives.
        inbox: the prefix of reply subjects, including the last dot.
        counters: the counters to update.
        terms: the constraints on the copies.
        window: how much may be in flight.

    Attributes:
        state: the state.
        unconfirmed: the messages in flight.
        window: the same.
        counters: the same.
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

    def takes(self, messages: list[Operation] | Bundle) -> bool:
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
        if self.takes(everything := list(pending)):
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

    def found_room(self, room: tuple[float, float]) -> None:
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


class Recovery:
    """Resolves messages in flight in order: sends them again, or lets the rule's policy reject them.

    Steps are done one after the other, until there is none.

    Args:
        publishing: the publisher's state, which is `recovering`.
    """

    def __init__(self, publishing: Publishing) -> None:
        self._publishing = publishing
        self._unconfirmed = publishing.unconfirmed
        # before the next try; zero as long as the target stores the messages that are sent again
        self._pause = _FIRST_PAUSE
        self._sent_again = b""  # the name of the message that was sent again last
        self._counted = b""  # the name of the message that was counted as out of order last

    def next_step(self, now: float) -> RecoveryStep | None:
        """Return the next step; None if nothing is in flight any longer."""
        unconfirmed = self._unconfirmed
        while unconfirmed.messages.count:
            if not unconfirmed.all_answered:
                return AwaitAnswers()
            unconfirmed.settle(now)
            if not unconfirmed.messages.count:
                break
            operation, pub_ack = unconfirmed.first_unstored()
            if pub_ack.kind != "refused":
                return self._retry(operation, pub_ack)
            if operation[0] not in unconfirmed.messages.uncounted:
                return Decide(operation, pub_ack)
            unconfirmed.messages.uncounted.discard(operation[0])  # it was stored before the target changed
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
        if self._unconfirmed.stores_later_ones and operation[0] != self._counted:
            self._counted = operation[0]
            self._publishing.counters.out_of_order += 1
        return self._unconfirmed.with_reply(operation)
