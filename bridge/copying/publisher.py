"""Publishing copies: pipelined, in order, and nothing taken for stored that the target has not accounted for.

Operations are written as they come, up to a window of unconfirmed ones. Three ways to know that they are stored:

* every message asks for an answer with a reply subject of its own, which ends in its sequence in the origin;
* the messages of a group ask with one reply subject: as many answers that say "stored" mean that all of them are. A
  reply subject that it has not seen just before costs a server much: 9.2 µs a message instead of 6.9 (2.10.27). Which
  message another answer is about cannot be told, so then everything under way is asked for again, each by itself;
* or only the last of a group asks, while nobody else writes to the target: its answer tells a sequence, and if that
  has advanced by exactly the size of the group, all of them are stored. Answers cost the server and us as much as the
  messages. That nobody else writes is heard: the connection, which gets no echo of its own messages, subscribes to the
  target's subjects. When somebody does, or the numbers do not fit, the whole pipeline and the groups just before are
  asked for one by one, and every message asks from then on. Used for streams with one replica that take everything,
  by rules with one source.

Message ids keep what is asked for again from being stored twice.

What can go wrong within a connection is handled here:

* the target is full: it says so; from the first message that it did not take, all that it did not take are sent again,
  each alone, until it takes them. A message that was taken after one that was not would be out of order; so a target
  that refuses messages when it is full gets no more at once than it has room for, and near its end one by one;
* it refuses a message for good: the rule's policy decides (`rejections`), then the rest goes on.

When nobody can tell any more which messages were stored (the connection broke, an answer did not come), `interrupted`
is called: whoever reads the origin must find out from the target what is there, and begin again.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from typing import TypeAlias

import structlog

from bridge.cancelling import end_tasks
from bridge.connection import Link
from bridge.copying.copy_loop import Operation
from bridge.copying.counters import CopyCounters
from bridge.copying.target import Target
from bridge.copying.verdict import Verdict
from bridge.errors import ApiError, RuleRefusedError
from bridge.gate import ALWAYS_OPEN, Gate
from bridge.measures import InFlight, Measures
from bridge.wire import BatchSubscription, Delivered

__all__ = ["MOST_UNCONFIRMED", "Publisher", "Refused"]

_log = structlog.get_logger("bridge.copying.publisher")

MOST_UNCONFIRMED = 8192
"""Messages under way at most; what an interruption can leave in doubt."""

_MOST_BYTES = 16 << 20  # under way at most
_MOST_UNSENT = 1 << 20  # bytes in the socket's buffer before the next batch waits
_ANSWER_WAIT = 5.0  # seconds without any answer, after which one is taken for lost
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 1.0  # seconds between two tries on a full target
_ALONE = 1000  # messages that are sent one by one after the target was full, before the pipeline opens again
_GROUP = 64  # messages per answer, while nobody else writes
_KEPT_GROUPS = 16  # confirmed groups that are asked for again when the numbers stop fitting
_LONGEST_REMEMBERED = 30.0  # seconds for which messages may be sent again

_SHARED = b"g"
"""Begins the name of a group whose messages all ask; the name of its last message is that message's own."""

_Group: TypeAlias = tuple[bytes, int, float]
"""Its name in the reply subject, how many messages it is, and when they were sent."""

_Heard: TypeAlias = tuple[int, int, int]
"""Of a group: its answers so far, how many of them say "duplicate", and the last sequence that they tell."""

_NOTHING: _Heard = (0, 0, 0)

Refused = Callable[[Operation, Verdict], Awaitable[None]]
"""Called with an operation that the target refused for good; raises what ends the rule, or returns to go on."""


class Publisher:
    """Publishes one entry's copies.

    Args:
        link: the connection of the target.
        target: the stream that receives.
        counters: where to count.
        measures: told when something is known to be stored.
        refused: the policy.
        interrupted: called once, with the reason, when it is unknown what was stored.
        failed: called once with the error that ends the rule.
        rule: the rule's name, for the log.
        alone: whether the connection has no echo and nothing else of ours writes to the target by it.
        one_by_one: have each message confirmed before the next one is sent: then none is ever stored before another
            that was left out, whatever happens to the target.
        keeps_sequence: a copy stored under another sequence than its origin's ends the rule.
        gate: asked before every write. When it is closed, what is under way is given up: until it opens again, the
            target may be another replica's.

    Attributes:
        waiting: whether the target takes nothing at the moment.
    """

    def __init__(
        self,
        link: Link,
        target: Target,
        counters: CopyCounters,
        measures: Measures,
        refused: Refused,
        interrupted: Callable[[str], None],
        failed: Callable[[BaseException], None],
        *,
        rule: str,
        alone: bool = False,
        one_by_one: bool = False,
        keeps_sequence: bool = False,
        gate: Gate = ALWAYS_OPEN,
    ) -> None:
        self.waiting = False
        self._gate = gate
        self._inbox = b"%b." % link.client.new_inbox().encode()
        self._link = link
        self._stream = target.name
        self._log = _log.bind(rule=rule, stream=target.name)
        self._counters = counters
        self._measures = measures
        self._expected: deque[tuple[int, int]] = deque()
        self._refused = refused
        self._interrupted = interrupted
        self._failed = failed
        self._pending: deque[Operation] = deque()
        self._pending_bytes = 0
        self._left: Collection[Operation] = ()  # of a batch that waits
        self._groups: deque[_Group] = deque()
        self._grouping = alone and target.counts_copies
        self._apart = False  # whether every message has a reply subject of its own, while something is sorted out
        self._subjects = target.subjects
        self._bounded = target.full_is_refused
        self._room_left = target.room
        self._last = 0
        self._confirmed: deque[tuple[float, list[Operation]]] = deque(maxlen=_KEPT_GROUPS)
        self._last_confirmed = 0
        # Sent again later than this, a message could be stored twice: the target forgets ids.
        self._remembered = min(target.window_ns / 4e9, _LONGEST_REMEMBERED)
        self._counted: set[bytes] = set()  # sequences that are no new copies: counted before, or fillers
        self._doubted: set[bytes] = set()  # sequences asked for again: a duplicate is what was stored at first
        self._verdicts: dict[bytes, Verdict] = {}
        # Where what is asked for by mistake is not asked for again in time, each message asks by itself.
        self._shares = not keeps_sequence and self._remembered >= _ANSWER_WAIT
        self._heard = _NOTHING  # of the first group
        self._ahead: dict[bytes, _Heard] = {}  # of other groups that all ask, by name
        self._good = b"\0"  # how an answer begins that says "stored"; learned from the first
        self._all_stored = re.compile(b"\0")  # matches any number of such answers
        self._answers = 0
        self._answered = asyncio.Event()
        self._one_by_one = one_by_one
        self._keeps = keeps_sequence
        self._alone = 0
        self._over = False
        self._subscriptions: list[BatchSubscription] = []
        self._mending: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None

    @property
    def over(self) -> bool:
        """Whether it was closed, interrupted, or has failed: it sends nothing more."""
        return self._over

    @property
    def has_work(self) -> bool:
        """Whether something is under way."""
        return bool(self._pending)

    async def open(self) -> None:
        """Begin to listen for answers, and for others who write to the target."""
        self._link.on_disconnect(self._disconnected)
        self._link.on_refusal(self._listening_refused)
        await self._listen(self._inbox.decode() + "*", self._on_answers)
        if self._grouping:
            for subject in self._subjects:
                await self._listen(subject.decode(), self._on_others)
        if not await self._link.flush():  # raw writes would overtake the subscription
            self.interrupt("the connection to the target is lost")
        self._watcher = asyncio.create_task(self._watch())

    def begin(self, last: int) -> None:
        """Tell the target's last sequence, which was read after `open`: copying may begin."""
        self._last = last

    async def _listen(self, subject: str, on_batch: Callable[[list[Delivered]], None]) -> None:
        self._subscriptions.append(await self._link.client.subscribe_batches(subject, on_batch, lambda *_: None))

    async def close(self) -> None:
        """Stop; what is not confirmed stays unknown."""
        self._over = True
        self._link.forget(self._disconnected, self._listening_refused)
        await end_tasks(self._watcher, self._mending)
        for subscription in self._subscriptions:
            await subscription.release()
        self._answered.set()

    def expect(self, last: bytes, oldest_ns: int) -> None:
        """Tell of a batch that is about to be sent: its last message's sequence in the origin, its oldest's time."""
        self._expected.append((int(last), oldest_ns))

    def count_no_copies(self, operations: list[Operation]) -> None:
        """What is about to be sent is not counted as copied."""
        self._counted |= {sequence for sequence, _ in operations}

    @property
    def in_flight(self) -> InFlight:
        """What is to be sent, or sent and not known to be stored."""
        expected = tuple(self._expected)
        messages = len(self._pending) + len(self._left)
        return InFlight(messages, expected[0][1] if expected and messages else 0)

    def send(self, operations: list[Operation]) -> Awaitable[None] | None:
        """Publish, in order.

        Returns:
            None, or something to await before the next operations are sent.
        """
        if not operations:
            return None
        if self._over or self._mending is not None or not self._link.client.is_connected:
            return self._send_carefully(operations)
        if self._alone or self._one_by_one or (self._bounded and not self._fit(operations)):
            return self._send_carefully(operations)
        self._write(operations)
        if (
            len(self._pending) >= MOST_UNCONFIRMED
            or self._pending_bytes >= _MOST_BYTES
            or self._link.client.unsent_bytes > _MOST_UNSENT
        ):
            return self._room()
        return None

    def interrupt(self, reason: str) -> None:
        """Give up what is under way: it is unknown what of it is stored."""
        if not self._over:
            self._over = True
            self._answered.set()
            self._interrupted(reason)

    async def settled(self) -> None:
        """Wait until everything sent so far is stored (or skipped), or nobody can tell."""
        while (self._pending or self._mending is not None) and not self._over:
            await self._next_answer()

    @property
    def confirmed(self) -> tuple[int, int]:
        """The origin's sequence up to which everything is stored, 0 if nothing was; and the target's then."""
        return self._last_confirmed, self._last

    @property
    def _usable(self) -> bool:
        return not self._over and self._link.client.is_connected

    # -- sending -----------------------------------------------------------------------------------------------------

    def _write(self, operations: list[Operation]) -> None:
        if not self._pending:
            self._apart = False
            self._doubted.clear()
        self._pending.extend(operations)
        if self._grouping:
            data = self._grouped(operations)
        elif self._apart or not self._shares:
            data = self._each_asking(operations)
        else:
            data = self._all_asking(operations)
        size = sum([len(operation) for _, operation in operations])
        self._pending_bytes += size
        if self._bounded:
            # A little more than the bytes is stored; twice as many are reckoned with.
            self._room_left = (self._room_left[0] - len(operations), self._room_left[1] - 2 * size)
        self._transmit(data)

    def _transmit(self, data: bytes) -> None:
        if not self._gate.is_open:
            self.interrupt("the lease could not be renewed in time")
            return
        self._counters.bytes_out += len(data)
        self._link.client.write_raw(data, self._gate)

    def _grouped(self, operations: list[Operation]) -> bytes:
        """The bytes to write where only the last of each group asks for an answer."""
        parts = []
        now = asyncio.get_running_loop().time()
        for start in range(0, len(operations), _GROUP):
            group = operations[start : start + _GROUP]
            self._groups.append((group[-1][0], len(group), now))
            parts += [operation for _, operation in group[:-1]]
            parts.append(self._asking(group[-1]))
        return b"".join(parts)

    def _all_asking(self, operations: list[Operation]) -> bytes:
        """The bytes to write where the messages of each group ask with one reply subject."""
        parts = []
        now = asyncio.get_running_loop().time()
        for start in range(0, len(operations), _GROUP):
            group = operations[start : start + _GROUP]
            name = _SHARED + group[-1][0]
            self._groups.append((name, len(group), now))
            reply = self._inbox + name
            for _, data in group:
                subject_end = data.index(b" ", 5) + 1
                parts.append(b"%b%b %b" % (data[:subject_end], reply, data[subject_end:]))
        return b"".join(parts)

    def _each_asking(self, operations: list[Operation]) -> bytes:
        now = asyncio.get_running_loop().time()
        self._groups.extend([(sequence, 1, now) for sequence, _ in operations])
        return b"".join([self._asking(operation) for operation in operations])

    def _asking(self, operation: Operation) -> bytes:
        """The operation with a reply subject."""
        sequence, data = operation
        subject_end = data.index(b" ", 5) + 1
        return b"%b%b%b %b" % (data[:subject_end], self._inbox, sequence, data[subject_end:])

    async def _send_carefully(self, operations: list[Operation]) -> None:
        """Send when nothing is in the way; one by one after the target was full."""
        left = self._left = deque(operations)
        while left and not self._over:
            while self._mending is not None and not self._over:
                await self._next_answer()
            if not self._usable:
                self.interrupt("the connection to the target is lost")
                return
            if not self._alone and not self._one_by_one and (not self._bounded or self._fit(left)):
                self._write(list(left))
                left.clear()
            else:
                self._alone = self._alone - 1 if self._alone else (0 if self._one_by_one else _ALONE)
                self._write([left.popleft()])
                await self.settled()
                if not self._alone and self._bounded and not self._one_by_one:
                    await self._look_for_room()
        # What is left over an interruption is read again from the origin.

    def _fit(self, operations: Collection[Operation]) -> bool:
        messages, size = self._room_left
        return len(operations) <= messages and sum([len(data) for _, data in operations]) * 2 <= size

    async def _look_for_room(self) -> None:
        with contextlib.suppress(ApiError):  # then there is no more room than before
            info = await self._link.api.stream_info(self._stream)
            self._room_left = Target.of(info, self._link.server_version).room

    async def _room(self) -> None:
        if self._link.client.is_connected:
            try:
                await self._link.client.drained()
            except ConnectionError:
                return  # which interrupts
        while (
            len(self._pending) > MOST_UNCONFIRMED * 7 // 8 or self._pending_bytes > _MOST_BYTES // 2
        ) and not self._over:
            await self._next_answer()

    async def _next_answer(self) -> None:
        self._answered.clear()
        await self._answered.wait()

    # -- answers -----------------------------------------------------------------------------------------------------

    def _on_answers(self, answers: list[Delivered]) -> None:
        if self._over:
            return
        self._answers += len(answers)
        groups = self._groups
        confirmed, sent = self._last_confirmed, groups[0][2] if groups else 0.0
        done = 0
        if groups and self._mending is None and not self._verdicts:
            done = self._take_shared(answers) if groups[0][0].startswith(_SHARED) else self._take_single(answers)
        if done < len(answers):
            self._sort_out(answers[done:])
        if self._last_confirmed != confirmed:
            self._tell_stored(sent)
        self._answered.set()

    def _take_single(self, answers: list[Delivered]) -> int:
        """Forget messages or groups of which one asks, as long as all is as it should be; the answers looked at."""
        groups, good, start = self._groups, self._good, len(self._inbox)
        digits = len(good)
        done = stored = 0  # groups are kept one by one, messages are forgotten together
        for subject, _, _, payload in answers:
            if not groups or not payload.startswith(good):
                break
            asked, count, *_ = groups[0]
            number = payload[digits:-1]
            if subject[start:] != asked or not number.isdigit():
                break
            last = int(number)
            if last <= self._last or (count > 1 and last - self._last != count):
                break
            if self._keeps and last != int(asked):
                break
            self._last = last
            groups.popleft()
            if self._grouping:
                self._confirm(count)
            else:
                stored += count
            done += 1
        if stored:
            self._confirm(stored)
        return done

    def _take_shared(self, answers: list[Delivered]) -> int:
        """The same for groups of which all ask: nothing is looked at one by one if every answer says "stored"."""
        if self._all_stored.fullmatch(b"".join([payload for *_, payload in answers])) is None:
            return 0
        groups, digits = self._groups, len(self._good)
        subjects = [subject for subject, *_ in answers]
        done = stored = 0
        while groups and done < len(answers):
            asked, count, *_ = groups[0]
            heard, repeats, before = self._heard
            take = min(count - heard, len(answers) - done)
            if subjects[done : done + take] != [self._inbox + asked] * take:
                break
            last = int(answers[done + take - 1][3][digits:-1])
            if last - max(before, self._last) < take:
                break
            done += take
            if heard + take < count:
                self._heard = (heard + take, repeats, last)
                break
            self._last = last
            self._count_repeats(repeats)
            self._next_group()
            stored += count
        if stored:
            self._confirm(stored)
        return done

    def _tell_stored(self, sent: float) -> None:
        """Measure what was sent at that time, of the loop, and is known to be stored now."""
        measures, expected = self._measures, self._expected
        measures.publish.record(asyncio.get_running_loop().time() - sent)
        while expected and expected[0][0] <= self._last_confirmed:
            measures.arrived(expected.popleft()[1])
        if not self._pending:
            expected.clear()  # the origin may be a new stream, whose sequences begin anew
        measures.progressed()

    def _on_others(self, _: list[Delivered]) -> None:
        """Somebody else has written to the target."""
        if self._grouping and not self._over:
            self.ask_for_all()

    def _listening_refused(self, text: str) -> None:
        if "subscription" in text.lower():
            self.ask_for_all()

    def _confirm(self, count: int) -> None:
        """Forget the first operations: they are stored."""
        pending = self._pending
        group = [pending.popleft() for _ in range(count)]
        self._pending_bytes -= sum([len(operation) for _, operation in group])
        if self._counted:
            again = {sequence for sequence, _ in group} & self._counted
            self._counted -= again
            count -= len(again)
        self._counters.copied += count
        self._last_confirmed = int(group[-1][0])
        if self._grouping:
            self._confirmed.append((asyncio.get_running_loop().time(), group))

    def _sort_out(self, answers: list[Delivered]) -> None:
        """Answers that are not simply "stored" for the next message or group."""
        start = len(self._inbox)
        expected = {asked for asked, *_ in self._groups}
        told: dict[bytes, Verdict] = {}
        unclear = False
        for subject, _, block, payload in answers:
            asked = subject[start:]
            if asked not in expected:
                continue  # of a message that was asked for twice
            verdict = Verdict.parse(block, payload)
            if verdict.kind in ("stored", "duplicate") and verdict.stream != self._stream:
                self._fail(
                    RuleRefusedError(
                        f"stream '{verdict.stream}' takes copies meant for '{self._stream}': their subjects overlap"
                    )
                )
                return
            if self._keeps and verdict.sequence and verdict.sequence != int(asked):
                self._fail(self._lost_sequence(asked, verdict))
                return
            if verdict.kind == "later" and not verdict.stream:
                # Nobody there: the stream has no leader, or it was deleted, and may come back as another one.
                self.interrupt(verdict.description)
                return
            if verdict.kind == "stored" and verdict.sequence <= self._last:
                self.interrupt("the target is a new stream, or lost the end of its store")
                return
            if verdict.kind == "stored":
                self._learn(payload)
            if not asked.startswith(_SHARED):
                told[asked] = verdict
            elif verdict.kind in ("stored", "duplicate"):
                self._hear(asked, verdict)
            else:
                unclear = True
        self._verdicts |= told
        self._take_off()
        if unclear:
            self._ask_again([])
            return
        if self._grouping and self._verdicts:
            self.ask_for_all()
        if self._mending is None and any(verdict.kind in ("later", "refused") for verdict in told.values()):
            self._mending = asyncio.create_task(self._mend())

    def _lost_sequence(self, asked: bytes, verdict: Verdict) -> RuleRefusedError:
        why = (
            "its message id is that of an earlier message: shorten the stream's duplicate_window"
            if verdict.kind == "duplicate"
            else "somebody else writes to that stream, or a change of leaders left messages out"
        )
        return RuleRefusedError(
            f"stream '{self._stream}' has message {asked.decode()} of the origin as {verdict.sequence}, so"
            f" sequences can be kept no longer: {why}"
        )

    def _take_off(self) -> None:
        """Forget what is stored, as far as nothing unknown is before it."""
        groups, verdicts = self._groups, self._verdicts
        while groups:
            asked, count, _ = groups[0]
            if asked.startswith(_SHARED):
                heard, repeats, last = self._heard
                if heard < count:
                    return
                self._last = max(self._last, last)
                self._count_repeats(repeats)
            else:
                verdict = verdicts.get(asked)
                if verdict is None or verdict.kind not in ("stored", "duplicate"):
                    return
                if count > 1 and (verdict.kind != "stored" or verdict.sequence - self._last != count):
                    return
                del verdicts[asked]
                if verdict.kind == "stored":
                    self._last = verdict.sequence
                elif asked in self._doubted:
                    self._doubted.discard(asked)
                    if verdict.sequence < self._last:
                        self._counters.out_of_order += 1
                    self._last = max(verdict.sequence, self._last)
                else:
                    self._counters.duplicates += 1
                    self._counted.add(asked)
            self._next_group()
            self._confirm(count)

    def _next_group(self) -> None:
        groups = self._groups
        groups.popleft()
        self._heard = self._ahead.pop(groups[0][0], _NOTHING) if groups else _NOTHING

    def _learn(self, answer: bytes) -> None:
        """See how the target says "stored"."""
        good = answer[: answer.rindex(b":") + 1]
        if good != self._good:
            self._good, self._all_stored = good, re.compile(b"(?:%b[0-9]+})*" % re.escape(good))

    def _hear(self, asked: bytes, verdict: Verdict) -> None:
        """Count an answer to one of a group that all ask."""
        first = asked == self._groups[0][0]
        heard, repeats, last = self._heard if first else self._ahead.get(asked, _NOTHING)
        repeated = verdict.kind == "duplicate"
        counted = (heard + 1, repeats + repeated, last if repeated else verdict.sequence)
        if first:
            self._heard = counted
        else:
            self._ahead[asked] = counted

    def _count_repeats(self, repeats: int) -> None:
        self._counters.duplicates += repeats
        self._counters.copied -= repeats  # they are among the group's, which are all counted as copied

    def ask_for_all(self) -> None:
        """Somebody else writes, or something was not stored: every message asks, from the newest groups on."""
        if not self._grouping:
            return
        self._grouping = False
        since = asyncio.get_running_loop().time() - self._remembered
        known = [operation for sent, group in self._confirmed if sent > since for operation in group]
        self._confirmed.clear()
        self._ask_again(known)

    def _ask_again(self, known: list[Operation]) -> None:
        """Ask for everything that is under way once more, and for what was confirmed just before, each by itself."""
        since = asyncio.get_running_loop().time() - self._remembered
        if self._groups and self._groups[0][2] < since:
            self.interrupt("what the target has stored cannot be told, and it may have forgotten the ids of it")
            return
        self._counted |= {sequence for sequence, _ in known}
        self._pending.extendleft(reversed(known))
        self._doubted = {sequence for sequence, _ in self._pending}
        self._groups.clear()
        self._verdicts.clear()
        self._ahead.clear()
        self._heard = _NOTHING
        self._apart = bool(self._pending)
        self._pending_bytes = sum([len(operation) for _, operation in self._pending])
        self._counters.asked_again += len(self._pending)
        if self._usable and self._pending:
            # The ids let nothing be stored twice.
            self._transmit(self._each_asking(list(self._pending)))

    # -- trouble within a connection ---------------------------------------------------------------------------------

    async def _mend(self) -> None:
        """Bring everything pending to an end, in order."""
        pause, said_late = _FIRST_PAUSE, b""  # no pause as long as it takes them
        try:
            while self._pending:
                if not await self._all_told():
                    return self.interrupt("the target left a message without an answer")
                self._take_off()
                if not self._pending:
                    break
                operation = self._pending[0]
                verdict = self._verdicts.pop(operation[0])
                if verdict.kind == "refused":
                    if operation[0] in self._counted:
                        self._counted.discard(operation[0])  # asked for again, and stored before the target changed
                    else:
                        await self._refused(operation, verdict)
                    if not self._usable:
                        return self.interrupt("the connection to the target is lost")
                    self._groups.popleft()
                    sequence, data = self._pending.popleft()
                    self._last_confirmed = int(sequence)
                    self._pending_bytes -= len(data)
                    continue
                self._say_waiting(verdict)
                await asyncio.sleep(pause)
                if not self._usable:
                    return self.interrupt("the connection to the target is lost")
                late = any(later.kind == "stored" for later in self._verdicts.values())
                if late and operation[0] != said_late:
                    said_late = operation[0]
                    self._counters.out_of_order += 1
                self._transmit(self._asking(operation))
                if not await self._all_told():
                    return self.interrupt("the target left a message without an answer")
                taken = self._verdicts.get(operation[0])
                full = taken is not None and taken.kind == "later"
                pause = min(max(pause * 2, _FIRST_PAUSE), _LONGEST_PAUSE) if full else 0
            if self.waiting:
                self.waiting = False
                self._alone = _ALONE
                self._log.info("copying.continues")
        except Exception as error:
            self._fail(error)
        finally:
            self._mending = None
            self._answered.set()

    def _say_waiting(self, verdict: Verdict) -> None:
        if not self.waiting:
            self.waiting = True
            self._counters.waits += 1
            self._log.warning(
                "copying.waits",
                server_says=verdict.description,
                meaning="nothing is lost; copying goes on when the stream takes messages again",
            )

    async def _all_told(self) -> bool:
        """Wait until everything pending has a verdict; False if an answer is overdue."""
        while any(asked not in self._verdicts for asked, *_ in self._groups):
            try:
                async with asyncio.timeout(_ANSWER_WAIT):
                    await self._next_answer()
            except TimeoutError:
                return False
            if self._over:
                return False
        return True

    async def _watch(self) -> None:
        """See that answers come."""
        before = -1
        while not self._over:
            await asyncio.sleep(_ANSWER_WAIT)
            if self._pending and self._answers == before and self._mending is None:
                self.interrupt("the target does not answer")
            before = self._answers if self._pending else -1

    def _disconnected(self) -> None:
        self.interrupt("the connection to the target is lost")

    def _fail(self, error: BaseException) -> None:
        if not self._over:
            self._over = True
            self._answered.set()
            self._failed(error)
