"""Publishes copies, pipelined and in order. A message counts as stored only once the target has confirmed it.

This is the shell around cores without I/O: `publishing` decides what to send and when, `recovery` what to do with
messages that were not stored, `pub_ack_requests` how the target confirms messages, and `in_flight` how many may be in
flight. Message ids keep the target from storing a message twice.

```text
send ──▶ Publishing.write ──▶ socket ──▶ target
                                           │ PubAcks
owner.stored ◀── Publishing.answered ◀─────┘
                   │ not stored
                   ▼
                 Recovery: send again, or owner.refused
```

Problems within a connection are handled here: a target that is full for a while, and a message that it refuses
permanently, for which the rule's policy decides (`dead_letters`). When it is unknown which messages were stored (the
connection broke, an answer did not come), the round is interrupted (`round`). The entry then reads its newest
copies in the target, and begins its next round.

Its caller awaits `subscribe`, finds the target's last sequence after everything sent before, and calls `continue_after`
with it. Then it calls `send` for one batch after the other, and awaits the result before the next
one. Calling `expect` before a batch makes latencies right. At the end it changes the state of the round, and awaits
`close`.

A lost connection interrupts the round: `send` and `settled` return, messages in flight stay unknown, and this publisher
sends nothing again.

Invariants:

* Nothing is written while the fence is closed: another replica may write then.
* Once the round is over, nothing is written and no answer is read.
* Who awaits `send` or `settled` is woken by each read of answers, by the end of a recovery, and by the round's end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from nats_bridge.client.connection import Connection
from nats_bridge.client.pub_ack import PubAck
from nats_bridge.client.tasks import end_tasks
from nats_bridge.client.waiting import ANSWER
from nats_bridge.client.wire import BatchSubscription, Delivered
from nats_bridge.client.write_fence import ALWAYS_OPEN, WriteFence
from nats_bridge.errors import ApiError
from nats_bridge.kinds.copying.counters import CopyCounters
from nats_bridge.kinds.copying.encoder import Operation
from nats_bridge.kinds.copying.target import Target
from nats_bridge.kinds.copying.writing.in_flight import Bundle, Window, operations_of
from nats_bridge.kinds.copying.writing.publishing import (
    Action,
    Advanced,
    Fail,
    Interrupt,
    Publishing,
    Recover,
    Terms,
    Transmit,
)
from nats_bridge.kinds.copying.writing.recovery import AwaitAnswers, Decide, Recovery, Retry
from nats_bridge.observability.rule_metrics import InFlight, RuleMetrics

if TYPE_CHECKING:
    from nats_bridge.kinds.copying.round import RoundLife

_log = structlog.get_logger("bridge.copying.publisher")

_MOST_UNSENT = 1 << 20  # bytes in the socket's buffer before the next batch waits
_CONNECTION_LOST = "the connection to the target is lost"


@dataclass(slots=True)
class Outlet:
    """The way to the target, which the publishers of an entry's rounds share.

    Attributes:
        connection: the connection of the target.
        rule: the rule's name, for the log.
        metrics: updated when something is known to be stored.
        fence: checked before every write. When it is closed, messages in flight are given up, because another replica
            may own the target until it opens again.
        is_silent: whether answers were overdue, and none has come since. A server of 2.15.3 whose disk is full answers
            no publication at all. Each round then looks healthy until its answers are overdue, so this state outlives
            the round. It ends with an answer, or when nothing is left to send.
    """

    connection: Connection
    rule: str
    counters: CopyCounters
    metrics: RuleMetrics
    fence: WriteFence = ALWAYS_OPEN
    is_silent: bool = False


class PublisherOwner(Protocol):
    """Receives the results of a publisher."""

    async def refused(self, operation: Operation, pub_ack: PubAck) -> None:
        """Decide about an operation that the target refused permanently.

        Raise an error that ends the rule, or return.
        """

    def stored(self) -> None:
        """Note that `Publisher.confirmed` has changed, or that a recovery has ended."""


class Publisher:
    """Publishes one entry's copies in one round.

    Args:
        outlet: the way to the target.
        terms: the constraints on the copies.
        life: the state of the round, which changes when the state of the target is unknown or an error ends the rule.
        owner: decides about refused messages, and is told about stored ones.
        window: the limit of messages in flight, if no batch is larger than the previous one. This is also the number of
            messages that an interruption can leave in doubt. A fixed window if none is given.
    """

    def __init__(
        self,
        outlet: Outlet,
        target: Target,
        terms: Terms,
        life: RoundLife,
        owner: PublisherOwner,
        window: Window | None = None,
    ) -> None:
        self._outlet = outlet
        self._connection = outlet.connection
        self._target = target
        self._life = life
        self._owner = owner
        self._inbox = b"%b." % outlet.connection.client.new_inbox().encode()
        self._publishing = Publishing(target, self._inbox, outlet.counters, terms, window or Window())
        self._messages = self._publishing.unconfirmed.messages
        self._expected: deque[tuple[int, int]] = deque()  # of each batch in flight: its last name, its oldest time
        self._pending: Collection[Operation] = ()  # of a batch that waits
        self._answered = asyncio.Event()
        self._subscriptions: list[BatchSubscription] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._log = _log.bind(rule=outlet.rule, stream=target.name)
        life.when_sending_stops(self._stop_sending)

    def _stop_sending(self) -> None:
        self._publishing.happened("over")
        self._answered.set()

    # -- life --------------------------------------------------------------------------------------------------------

    async def subscribe(self) -> None:
        """Subscribe to answers, and to other clients' messages to the target."""
        self._connection.on_disconnect(self._disconnected)
        self._connection.on_refusal(self._listening_refused)
        await self._listen(self._inbox.decode() + "*", self._on_answers)
        if self._publishing.unconfirmed.relies_on_exclusivity:
            for subject in self._target.subjects:
                await self._listen(subject.decode(), self._on_others)
        if not await self._connection.flush():  # raw writes would overtake the subscription
            self._life.interrupt(_CONNECTION_LOST)
        self._tasks.add(asyncio.create_task(self._watch()))

    def continue_after(self, last: int) -> None:
        """Set the target's last sequence, which was read after `subscribe`. From now on, messages may be sent."""
        self._messages.continue_after(last)

    async def _listen(self, subject: str, on_batch: Callable[[list[Delivered]], None]) -> None:
        self._subscriptions.append(await self._connection.client.subscribe_batches(subject, on_batch, lambda *_: None))

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task that `close` ends."""
        self._tasks.add(task := asyncio.create_task(work))
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Stop, once the round is over. Unconfirmed messages stay unknown."""
        self._connection.forget(self._disconnected, self._listening_refused)
        await end_tasks(*self._tasks)
        for subscription in self._subscriptions:
            await subscription.release()

    # -- state for others --------------------------------------------------------------------------------------------

    @property
    def stopped_sending(self) -> bool:
        """Whether it sends nothing more."""
        return self._life.stopped_sending

    @property
    def has_work(self) -> bool:
        """Whether something is in flight."""
        return self._publishing.has_work

    @property
    def waiting(self) -> bool:
        """Whether the target has refused the first message in flight for now, which is sent again and again.

        It is False before the first retry, while answers are still awaited.
        """
        return self._publishing.state == "full"

    @property
    def in_flight(self) -> InFlight:
        """The messages to send, or sent and not known to be stored."""
        expected = tuple(self._expected)
        messages = self._messages.count + len(self._pending)
        return InFlight(messages, expected[0][1] if expected and messages else 0)

    @property
    def confirmed(self) -> tuple[int, int]:
        """The source's sequence up to which everything is stored or skipped, and the target's then.

        The first is 0 if nothing was. It steps back while confirmed messages are requested again.
        """
        return self._messages.last_confirmed, self._messages.last

    @property
    def placed(self) -> tuple[int, int]:
        """The source's and the target's sequence of a confirmed copy; see `MessagesInFlight`."""
        return self._messages.placed

    @property
    def target_is_shorter(self) -> bool:
        """Whether an answer has shown that the target lost its end, or is a new stream."""
        return self._publishing.unconfirmed.target_is_shorter

    @property
    def progress(self) -> tuple[int, int]:
        """A value that changes whenever an answer confirms something."""
        return self._messages.last_confirmed, self._publishing.unconfirmed.answers_for_first

    @property
    def widest(self) -> int:
        """The maximum number of messages that were allowed in flight so far."""
        return self._publishing.window.widest

    # -- sending -----------------------------------------------------------------------------------------------------

    def expect(self, last: bytes, oldest_ns: int) -> None:
        """Announce the next batch: the source's sequence of its last message, and the time of its oldest."""
        self._expected.append((int(last), oldest_ns))

    def count_no_copies(self, operations: list[Operation]) -> None:
        """Do not count the next operations as copied."""
        self._messages.uncounted.update([name for name, _ in operations])

    def send(self, messages: list[Operation] | Bundle) -> Awaitable[None] | None:
        """Publish, in order.

        Args:
            messages: without reply subjects.

        Returns:
            None, or something to await before the next operations are sent.
        """
        if not messages:
            return None
        publishing, client = self._publishing, self._connection.client
        if not client.is_connected or not publishing.may_write(messages):
            return self._send_when_possible(operations_of(messages))
        self._write(messages)
        if publishing.is_full_with(len(messages)) or client.unsent_bytes > _MOST_UNSENT:  # if as many follow
            return self._until_room()
        return None

    async def settled(self) -> None:
        """Wait until everything sent so far is stored or skipped, or the round is over."""
        while (self.has_work or self._publishing.recovers) and not self._life.stopped_sending:
            await self._next_answer()

    async def source_recreated(self) -> None:
        """Settle everything of the old source: the sequences of the new one begin again."""
        self.request_each()
        await self.settled()
        if not self._life.stopped_sending:
            self._publishing.unconfirmed.forget_names()

    def request_each(self) -> None:
        """Request the PubAck of each message from now on: another client writes, or may."""
        self._perform(self._publishing.request_each(self._now))

    def _write(self, messages: list[Operation] | Bundle) -> None:
        self._transmit(self._publishing.write(messages, self._now))

    def _transmit(self, data: bytes) -> None:
        if not self._outlet.fence.is_open:
            self._life.interrupt("the lease could not be renewed in time")
            return
        self._outlet.counters.bytes_out += len(data)
        self._connection.client.write_raw(data, self._outlet.fence)

    async def _send_when_possible(self, operations: list[Operation]) -> None:
        publishing = self._publishing
        pending = self._pending = deque(operations)
        while pending and not self._life.stopped_sending:
            while publishing.recovers and not self._life.stopped_sending:
                await self._next_answer()
            if not self._usable:
                self._life.interrupt(_CONNECTION_LOST)
                return
            self._write(publishing.portion(pending))
            if publishing.state == "stepping":
                await self.settled()
                if publishing.stepped():
                    await self._read_room()
        # The remaining messages are read from the source again after an interruption.

    async def _read_room(self) -> None:
        with contextlib.suppress(ApiError):  # then the room stays as it was
            info = await self._connection.api.stream_info(self._target.name)
            self._publishing.set_room(Target.of(info, self._connection.server_version).room)

    async def _until_room(self) -> None:
        if self._connection.client.is_connected:
            try:
                await self._connection.client.drained()
            except ConnectionError:
                return  # which interrupts
        while not self._publishing.has_room and not self._life.stopped_sending:
            await self._next_answer()

    async def _next_answer(self) -> None:
        self._answered.clear()
        await self._answered.wait()

    @property
    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    @property
    def _usable(self) -> bool:
        return not self._life.stopped_sending and self._connection.client.is_connected

    # -- what happens ------------------------------------------------------------------------------------------------

    def _on_answers(self, answers: list[Delivered]) -> None:
        if self._life.stopped_sending:
            return
        self._outlet.is_silent = False
        self._perform(self._publishing.answered(answers, self._now))
        self._answered.set()

    def _on_others(self, _: list[Delivered]) -> None:
        if not self._life.stopped_sending:
            self.request_each()

    def _listening_refused(self, text: str) -> None:
        if "subscription" in text.lower():
            self.request_each()

    def _disconnected(self) -> None:
        self._life.interrupt(_CONNECTION_LOST)

    async def _watch(self) -> None:
        """Check that answers arrive."""
        publishing, idle = self._publishing, True
        while not self._life.stopped_sending:
            await asyncio.sleep(ANSWER)
            if publishing.answers_are_overdue():
                self._overdue("the target does not answer")
            elif idle and not self.has_work:
                self._outlet.is_silent = False  # nothing is left to send, so no answer would end it
            idle = not self.has_work

    def _overdue(self, reason: str) -> None:
        if not self._life.stopped_sending:
            self._outlet.is_silent = True
            self._life.interrupt(reason)

    # -- reactions ---------------------------------------------------------------------------------------------------

    def _perform(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Advanced(sent):
                    self._report_stored(sent)
                case Transmit(data):
                    if self._usable:
                        self._transmit(data)
                case Interrupt(reason):
                    self._life.interrupt(reason)
                case Fail(error):
                    self._fail(error)
                case Recover():
                    if not self._life.stopped_sending:
                        self.start(self._recover())

    def _report_stored(self, sent: float) -> None:
        """Record the latency of messages that were sent at this time (of the loop) and are now stored."""
        metrics, expected = self._outlet.metrics, self._expected
        metrics.publish.record(self._now - sent)
        while expected and expected[0][0] <= self._messages.last_confirmed:
            metrics.arrived(expected.popleft()[1])
        if not self.has_work:
            expected.clear()  # the source may be a new stream, whose sequences restart at 1
        metrics.progressed()
        self._owner.stored()

    async def _recover(self) -> None:
        """Resolve messages in flight in order: retry, reject or skip each."""
        publishing, recovery = self._publishing, Recovery(self._publishing)
        try:
            while step := recovery.next_step(self._now):
                if isinstance(step, AwaitAnswers):
                    if not await self._answered_in_time():
                        return
                    continue
                if isinstance(step, Decide):
                    await self._owner.refused(step.operation, step.pub_ack)
                else:
                    self._say_waiting(step)
                    await asyncio.sleep(step.pause)
                if not self._usable:
                    self._life.interrupt(_CONNECTION_LOST)
                    return
                if isinstance(step, Decide):
                    recovery.skip()
                else:
                    self._transmit(recovery.again(step.operation))
            if publishing.recovered():
                self._log.info("copying.continues")
        except Exception as error:
            self._fail(error)
        finally:
            self._answered.set()
            self._owner.stored()

    def _say_waiting(self, retry: Retry) -> None:
        if retry.begins_waiting:
            self._outlet.counters.waits += 1
            self._log.warning(
                "copying.waits",
                server_says=retry.pub_ack.description,
                meaning="nothing is lost; copying resumes when the stream accepts messages again",
            )

    async def _answered_in_time(self) -> bool:
        """Wait for an answer. Return whether to continue."""
        try:
            async with asyncio.timeout(ANSWER):
                await self._next_answer()
        except TimeoutError:
            self._overdue("the target did not answer a message")
        return not self._life.stopped_sending

    def _fail(self, error: BaseException) -> None:
        if not self._life.stopped_sending:
            self._life.fail(error)
