"""Publishes copies: pipelined, in order; a message counts as stored only when the target has accounted for it.

Operations are written as they come, up to a window of unconfirmed ones (`window`). Three ways to know that they are
stored:

* every message requests a PubAck. Its reply subject ends in its sequence in the source;
* the messages of a group request PubAcks with one reply subject: as many PubAcks that say "stored" mean that all of
  them are. A reply subject that it has not seen just before costs a server much: 9.2 µs a message instead of 6.9
  (2.10.27). Any other answer does not name its message, so then everything in flight is sent again, each message with
  its own reply subject;
* or only the last of a group requests a PubAck, while the rule has the target exclusively: the PubAck has a sequence,
  and if that has advanced by exactly the size of the group, all of them are stored. PubAcks cost the server and us as
  much as the messages. The connection subscribes to the target's subjects and gets no echo of its messages, so it
  notices other writers. When another client writes, or the numbers do not fit, the whole pipeline and the groups just
  before are sent again one by one, and every message requests its own PubAck from then on. Used for streams with one
  replica that take everything and remember ids for 20 s or more, by rules with one source.

Message ids keep what is sent again from being stored twice.

Where only the target shows what was left out (`stop_and_wait`), messages go one by one until one is stored. A round
looks for what an interruption left out after the oldest copy, or after what was confirmed: if the first messages were
lost and later ones stored, as when a cluster changes its leader, no round would find them.

What can go wrong within a connection is handled here:

* the target is full: it says so; from the first message that it did not take, all that it did not take are sent again,
  each alone, until it takes them. A message that was taken after one that was not would be out of order; so a target
  that refuses messages when it is full gets no more at once than it has room for, and near its end one by one;
* it refuses a message permanently: the rule's policy decides (`dead_letters`), then the rest follows.

When it is unknown which messages were stored (the connection broke, an answer did not come), the round is interrupted
(`round_life`): the entry finds out from the target what it holds, and begins its next round.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Collection

import structlog

from nats_bridge.client.connection import Connection
from nats_bridge.client.pub_ack import PubAck
from nats_bridge.client.tasks import end_tasks
from nats_bridge.client.waiting import ANSWER
from nats_bridge.client.wire import BatchSubscription, Delivered
from nats_bridge.client.write_fence import ALWAYS_OPEN, WriteFence
from nats_bridge.errors import ApiError, RuleRefusedError
from nats_bridge.kinds.copying.counters import CopyCounters
from nats_bridge.kinds.copying.round_life import RoundLife
from nats_bridge.kinds.copying.target import Target
from nats_bridge.kinds.copying.writing.bundle import Bundle, operations_of, size_of
from nats_bridge.kinds.copying.writing.encoder import Operation
from nats_bridge.kinds.copying.writing.in_flight import LostTrackError, Unconfirmed
from nats_bridge.kinds.copying.writing.silence import Silence
from nats_bridge.kinds.copying.writing.window import Window
from nats_bridge.observability.rule_metrics import InFlight, RuleMetrics

_log = structlog.get_logger("bridge.copying.publisher")

_MOST_UNSENT = 1 << 20  # bytes in the socket's buffer before the next batch waits
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 1.0  # seconds between two tries on a full target
_STOP_AND_WAIT = 1000  # messages that are sent one by one after the target was full, before the pipeline opens again

Refused = Callable[[Operation, PubAck], Awaitable[None]]
"""Called with an operation that the target refused permanently; raises what ends the rule, or returns to continue."""


class Publisher:
    """Publishes one entry's copies.

    Args:
        connection: the connection of the target.
        target: the stream that receives.
        counters: where to count.
        metrics: updated when something is known to be stored.
        refused: the policy.
        life: the state of its round, which it moves when it is unknown what was stored, or an error ends the rule.
        rule: the rule's name, for the log.
        exclusive: whether the connection has no echo and nothing else of ours writes to the target by it.
        stop_and_wait: how many messages are to be stored, each confirmed before the next one is sent: none is ever
            stored before one of these that was left out, whatever happens to the target.
        keeps_sequence: a copy stored under another sequence than its source's ends the rule.
        fence: asked before every write. When it is closed, what is in flight is given up: until it opens again, the
            target may be another replica's.
        window: how much may be in flight, as long as each batch is no larger than the one before: what an interruption
            can leave in doubt. A fixed one where none is given.
        stored: called when `confirmed` has changed.
        silence: set when answers are overdue, and reset by the next one, or if nothing is left to send.

    Attributes:
        window: the same.
        waiting: whether the target takes nothing at the moment.
    """

    def __init__(
        self,
        connection: Connection,
        target: Target,
        counters: CopyCounters,
        metrics: RuleMetrics,
        refused: Refused,
        life: RoundLife,
        *,
        rule: str,
        exclusive: bool = False,
        stop_and_wait: float = 0,
        keeps_sequence: bool = False,
        fence: WriteFence = ALWAYS_OPEN,
        window: Window | None = None,
        stored: Callable[[], None] = lambda: None,
        silence: Silence | None = None,
    ) -> None:
        self.waiting = False
        self._silence = silence or Silence()
        self._stored = stored
        self.window = window or Window()
        self._fence = fence
        self._inbox = b"%b." % connection.client.new_inbox().encode()
        self._connection = connection
        self._stream = target.name
        self._log = _log.bind(rule=rule, stream=target.name)
        self._counters = counters
        self._metrics = metrics
        self._expected: deque[tuple[int, int]] = deque()
        self._refused = refused
        self._life = life
        self._pending: Collection[Operation] = ()  # of a batch that waits
        self._unconfirmed = Unconfirmed(
            target, self._inbox, counters, exclusive=exclusive, keeps_sequence=keeps_sequence
        )
        self._subjects = target.subjects
        self._bounded = target.full_is_refused
        self._room_left = target.room
        self._answers = 0
        self._answered = asyncio.Event()
        life.when_over(self._answered.set)
        self._stop_and_wait = stop_and_wait  # how many are still to be
        self._subscriptions: list[BatchSubscription] = []
        self._recovery: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None

    @property
    def over(self) -> bool:
        """Whether it sends nothing more."""
        return self._life.over

    @property
    def has_work(self) -> bool:
        """Whether something is in flight."""
        return self._unconfirmed.count > 0

    async def open(self) -> None:
        """Subscribe to answers, and to other clients' messages to the target."""
        self._connection.on_disconnect(self._disconnected)
        self._connection.on_refusal(self._listening_refused)
        await self._listen(self._inbox.decode() + "*", self._on_answers)
        if self._unconfirmed.grouping:
            for subject in self._subjects:
                await self._listen(subject.decode(), self._on_others)
        if not await self._connection.flush():  # raw writes would overtake the subscription
            self._life.interrupt("the connection to the target is lost")
        self._watcher = asyncio.create_task(self._watch())

    def begin(self, last: int) -> None:
        """Set the target's last sequence, which was read after `open`: copying may begin."""
        self._unconfirmed.begin(last)

    async def _listen(self, subject: str, on_batch: Callable[[list[Delivered]], None]) -> None:
        self._subscriptions.append(await self._connection.client.subscribe_batches(subject, on_batch, lambda *_: None))

    async def close(self) -> None:
        """Stop, once the round is over; what is not confirmed stays unknown."""
        self._connection.forget(self._disconnected, self._listening_refused)
        await end_tasks(self._watcher, self._recovery)
        for subscription in self._subscriptions:
            await subscription.release()

    def expect(self, last: bytes, oldest_ns: int) -> None:
        """Announce a batch that is about to be sent: its last message's sequence in the source, its oldest's time."""
        self._expected.append((int(last), oldest_ns))

    def count_no_copies(self, operations: list[Operation]) -> None:
        """Do not count the next operations as copied."""
        self._unconfirmed.count_no_copies(operations)

    @property
    def in_flight(self) -> InFlight:
        """The messages to send, or sent and not known to be stored."""
        expected = tuple(self._expected)
        messages = self._unconfirmed.count + len(self._pending)
        return InFlight(messages, expected[0][1] if expected and messages else 0)

    def send(self, messages: list[Operation] | Bundle) -> Awaitable[None] | None:
        """Publish, in order.

        Args:
            messages: without reply subjects.

        Returns:
            None, or something to await before the next operations are sent.
        """
        if not messages:
            return None
        if self._life.over or self._recovery is not None or not self._connection.client.is_connected:
            return self._send_carefully(operations_of(messages))
        if self._stop_and_wait or not self._fit(messages):
            return self._send_carefully(operations_of(messages))
        self._write(messages)
        if (
            self._unconfirmed.count + len(messages) > self.window.messages  # if as many follow
            or self._unconfirmed.size >= self.window.size
            or self._connection.client.unsent_bytes > _MOST_UNSENT
        ):
            return self._room()
        return None

    async def settled(self) -> None:
        """Wait until everything sent so far is stored or skipped, or the round is over."""
        while (self.has_work or self._recovery is not None) and not self._life.over:
            await self._next_answer()

    async def source_recreated(self) -> None:
        """Settle all that is to be asked of the old source: the sequences of the new one begin again."""
        self.ask_for_all()
        await self.settled()
        if not self._life.over:
            self._unconfirmed.forget_names()

    @property
    def confirmed(self) -> tuple[int, int]:
        """The source's sequence up to which everything is stored, 0 if nothing was; and the target's then."""
        return self._unconfirmed.last_confirmed, self._unconfirmed.last

    @property
    def placed(self) -> tuple[int, int]:
        """The source's and the target's sequence of a copy that the target has confirmed; see `Unconfirmed`."""
        return self._unconfirmed.placed

    @property
    def progress(self) -> tuple[int, int]:
        """Changes whenever an answer says that something is stored."""
        return self._unconfirmed.last_confirmed, self._unconfirmed.answered

    @property
    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    @property
    def _usable(self) -> bool:
        return not self._life.over and self._connection.client.is_connected

    # -- sending -----------------------------------------------------------------------------------------------------

    def _write(self, messages: list[Operation] | Bundle) -> None:
        now = self._now
        self.window.sent(now, first=not self.has_work)
        data = self._unconfirmed.add(messages, now)
        if self._bounded:
            # A little more than the bytes is stored; twice as many are reckoned with.
            self._room_left = (self._room_left[0] - len(messages), self._room_left[1] - 2 * size_of(messages))
        self._transmit(data)

    def _transmit(self, data: bytes) -> None:
        if not self._fence.is_open:
            self._life.interrupt("the lease could not be renewed in time")
            return
        self._counters.bytes_out += len(data)
        self._connection.client.write_raw(data, self._fence)

    async def _send_carefully(self, operations: list[Operation]) -> None:
        """Send when nothing blocks it; one by one at first, and after the target was full."""
        pending = self._pending = deque(operations)
        while pending and not self._life.over:
            while self._recovery is not None and not self._life.over:
                await self._next_answer()
            if not self._usable:
                self._life.interrupt("the connection to the target is lost")
                return
            if not self._stop_and_wait and self._fit(rest := list(pending)):
                self._write(rest)
                pending.clear()
            else:
                self._stop_and_wait = self._stop_and_wait or _STOP_AND_WAIT
                self._write([pending.popleft()])
                await self.settled()
                self._stop_and_wait -= self._unconfirmed.has_stored
                if not self._stop_and_wait and self._bounded:
                    await self._look_for_room()
        # What is left over an interruption is read again from the source.

    def _fit(self, messages: list[Operation] | Bundle) -> bool:
        """Whether the target has room for them all, or needs none to be reckoned with."""
        return not self._bounded or (
            len(messages) <= self._room_left[0] and size_of(messages) * 2 <= self._room_left[1]
        )

    async def _look_for_room(self) -> None:
        with contextlib.suppress(ApiError):  # then the room stays as it was
            info = await self._connection.api.stream_info(self._stream)
            self._room_left = Target.of(info, self._connection.server_version).room

    async def _room(self) -> None:
        if self._connection.client.is_connected:
            try:
                await self._connection.client.drained()
            except ConnectionError:
                return  # which interrupts
        pending, window = self._unconfirmed, self.window
        while (pending.count > window.messages * 7 // 8 or pending.size > window.size * 7 // 8) and not self._life.over:
            await self._next_answer()

    async def _next_answer(self) -> None:
        self._answered.clear()
        await self._answered.wait()

    # -- answers -----------------------------------------------------------------------------------------------------

    def _on_answers(self, answers: list[Delivered]) -> None:
        if self._life.over:
            return
        self._answers += len(answers)
        self._silence.lasts = False
        unconfirmed = self._unconfirmed
        confirmed, sent = unconfirmed.last_confirmed, unconfirmed.sent_first
        count, size = unconfirmed.count, unconfirmed.size
        done = unconfirmed.take(answers, self._now) if self._recovery is None else 0
        if unconfirmed.count < count:
            self.window.confirmed(count - unconfirmed.count, size - unconfirmed.size, sent, self._now)
        if done < len(answers):
            self._sort_out(answers[done:])
        if unconfirmed.last_confirmed != confirmed:
            self._report_stored(sent)
        self._answered.set()

    def _report_stored(self, sent: float) -> None:
        """Measure what was sent at that time, of the loop, and is known to be stored now."""
        metrics, expected = self._metrics, self._expected
        metrics.publish.record(self._now - sent)
        while expected and expected[0][0] <= self._unconfirmed.last_confirmed:
            metrics.arrived(expected.popleft()[1])
        if not self.has_work:
            expected.clear()  # the source may be a new stream, whose sequences restart at 1
        metrics.progressed()
        self._stored()

    def _on_others(self, _: list[Delivered]) -> None:
        """Note that another client has written to the target."""
        if not self._life.over:
            self.ask_for_all()

    def _listening_refused(self, text: str) -> None:
        if "subscription" in text.lower():
            self.ask_for_all()

    def _sort_out(self, answers: list[Delivered]) -> None:
        """Handle answers that are not simply "stored" for the next message or group."""
        try:
            unclear, untaken = self._unconfirmed.sort_out(answers, self._now)
        except LostTrackError as error:
            self._life.interrupt(str(error))
        except RuleRefusedError as error:
            self._fail(error)
        else:
            if unclear:
                self._request_again()
            if untaken and self._recovery is None and not self._life.over:
                self._recovery = asyncio.create_task(self._recover())

    def ask_for_all(self) -> None:
        """Make every message ask, from the newest groups on: another client writes, or something was not stored."""
        if self._unconfirmed.grouping:
            self._request_again()

    def _request_again(self) -> None:
        try:
            data = self._unconfirmed.ask_again(self._now)
        except LostTrackError as error:
            self._life.interrupt(str(error))
            return
        if self._usable and data:
            self._transmit(data)  # the ids let nothing be stored twice

    # -- trouble within a connection ---------------------------------------------------------------------------------

    async def _recover(self) -> None:
        """Resolve what is in flight, in order: retry, reject or skip."""
        unconfirmed = self._unconfirmed
        pause, said_late = _FIRST_PAUSE, b""  # no pause as long as it takes them
        try:
            while unconfirmed.count:
                if not await self._all_answered():
                    return self._overdue("the target left a message without an answer")
                unconfirmed.take_off(self._now)
                if not unconfirmed.count:
                    break
                operation = unconfirmed.first
                pub_ack = unconfirmed.pub_acks.pop(operation[0])
                if pub_ack.kind == "refused":
                    if not unconfirmed.was_counted(operation[0]):  # else stored before the target changed
                        await self._refused(operation, pub_ack)
                    if not self._usable:
                        return self._life.interrupt("the connection to the target is lost")
                    unconfirmed.skip()
                    continue
                self._say_waiting(pub_ack)
                await asyncio.sleep(pause)
                if not self._usable:
                    return self._life.interrupt("the connection to the target is lost")
                late = any(later.kind == "stored" for later in unconfirmed.pub_acks.values())
                if late and operation[0] != said_late:
                    said_late = operation[0]
                    self._counters.out_of_order += 1
                self._transmit(unconfirmed.with_reply(operation))
                if not await self._all_answered():
                    return self._overdue("the target left a message without an answer")
                answer = unconfirmed.pub_acks.get(operation[0])
                full = answer is not None and answer.kind == "later"
                pause = min(max(pause * 2, _FIRST_PAUSE), _LONGEST_PAUSE) if full else 0
            if self.waiting:
                self.waiting = False
                self._stop_and_wait = max(self._stop_and_wait, _STOP_AND_WAIT)
                self._log.info("copying.continues")
        except Exception as error:
            self._fail(error)
        finally:
            self._recovery = None
            self._answered.set()
            self._stored()

    def _say_waiting(self, pub_ack: PubAck) -> None:
        if not self.waiting:
            self.waiting = True
            self._counters.waits += 1
            self._log.warning(
                "copying.waits",
                server_says=pub_ack.description,
                meaning="nothing is lost; copying resumes when the stream takes messages again",
            )

    async def _all_answered(self) -> bool:
        """Wait until everything pending has a PubAck; False if an answer is overdue."""
        while not self._unconfirmed.all_answered:
            try:
                async with asyncio.timeout(ANSWER):
                    await self._next_answer()
            except TimeoutError:
                return False
            if self._life.over:
                return False
        return True

    async def _watch(self) -> None:
        """Check that answers arrive."""
        before = -1
        while not self._life.over:
            await asyncio.sleep(ANSWER)
            if self.has_work and self._answers == before and self._recovery is None:
                self._overdue("the target does not answer")
            elif not self.has_work and before < 0:
                self._silence.lasts = False  # nothing is left to send, so no answer would end it
            before = self._answers if self.has_work else -1

    def _overdue(self, reason: str) -> None:
        if self._life.over:
            return
        self._silence.lasts = True
        self._life.interrupt(reason)

    def _disconnected(self) -> None:
        self._life.interrupt("the connection to the target is lost")

    def _fail(self, error: BaseException) -> None:
        if not self._life.over:
            self._life.fail(error)
