"""Tracks operations in flight to a stream, and matches the stream's answers.

No input or output: operations go in and bytes to write come out, answers go in and what to do about them comes out.
PubAcks are requested by groups; see `nats_bridge.kinds.copying.writing.publisher` for the three ways. A group's name
ends the reply subject of those of its messages that request one.
"""

from __future__ import annotations

import re
from collections import deque
from typing import TypeAlias

from nats_bridge.client.pub_ack import PubAck
from nats_bridge.client.waiting import ANSWER
from nats_bridge.client.wire import Delivered
from nats_bridge.errors import RuleRefusedError
from nats_bridge.kinds.copying.counters import CopyCounters
from nats_bridge.kinds.copying.target import Target
from nats_bridge.kinds.copying.writing.bundle import Bundle, BundleSlice, Messages, operations_of, size_of
from nats_bridge.kinds.copying.writing.encoder import Operation

_GROUP = 64  # messages per group, but where all messages of a bundle request PubAcks: it is one group
_KEPT_GROUPS = 16  # confirmed groups that are sent again when the numbers stop fitting
_LONGEST_REMEMBERED = 30.0  # seconds for which messages may be sent again
_SHARED = b"g"
"""Begins the name of a group with one reply subject; else a group has the name of the message that requests."""

_Group: TypeAlias = tuple[bytes, int, int, float, Messages]
"""Its name, how many messages it is, their bytes, when they were sent, and they themselves."""

_Answered: TypeAlias = tuple[int, int, int]
"""Of a group: its answers so far, how many of them say "duplicate", and the last sequence in them."""

_NOTHING: _Answered = (0, 0, 0)


class LostTrackError(Exception):
    """It is unknown what was stored; `str` says why."""


class Unconfirmed:
    """The operations in flight to one stream, in order.

    Args:
        target: the stream.
        inbox: what reply subjects begin with, the last dot included.
        counters: where to count.
        exclusive: whether no other entry writes to the target, and the publications of other clients are received.
        keeps_sequence: whether every message must be stored under the sequence that is its name.

    Attributes:
        count: how many messages are in flight.
        size: their bytes.
        grouping: whether one message of a group requests the PubAck for all of it.
        last: the target's sequence when the last one was confirmed.
        last_confirmed: the name of the last one that is known to be stored; 0 for none.
        placed: the name of the last one that was stored under a sequence of its own, and that sequence; 0 for none.
        has_stored: whether any message is known to be stored.
        pub_acks: answers that could not be taken as they came, by the message's name.
    """

    def __init__(
        self, target: Target, inbox: bytes, counters: CopyCounters, *, exclusive: bool, keeps_sequence: bool
    ) -> None:
        self.count = 0
        self.size = 0
        self.last = 0
        self.last_confirmed = 0
        self.placed = (0, 0)
        self.has_stored = False
        self.pub_acks: dict[bytes, PubAck] = {}
        self._stream = target.name
        self._inbox = inbox
        self._counters = counters
        self._keeps = keeps_sequence
        # Sent again later than this, a message could be stored twice: the target forgets ids.
        self._remembered = min(target.window_ns / 4e9, _LONGEST_REMEMBERED)
        # Where what is unclear cannot be sent again in time, each message requests its own PubAck.
        in_time = self._remembered >= ANSWER
        self.grouping = exclusive and target.counts_copies and in_time
        self._shares = not keeps_sequence and in_time
        self._individual = False  # whether each message requests its own PubAck until something is sorted out
        self._groups: deque[_Group] = deque()
        self._confirmed: deque[tuple[float, int, Messages]] = deque(maxlen=_KEPT_GROUPS)
        self._counted: set[bytes] = set()  # names of no new copies: counted before, or fillers
        self._doubted: set[bytes] = set()  # names sent again: for these, duplicate can mean stored
        self._doubted_after = 0  # the target's last sequence before the first of them was sent for the first time
        self._placed: set[int] = set()  # where those of them are stored that are confirmed
        self._last_doubted = 0  # where the last confirmed one of them was stored
        self._answered = _NOTHING  # of the first group
        self._ahead: dict[bytes, _Answered] = {}  # of other groups whose messages all ask, by name
        self._good = b"\0"  # how an answer begins that says "stored"; learned from the first
        self._all_stored = re.compile(b"\0")  # any number of such answers

    @property
    def operations(self) -> list[Operation]:
        """The operations in flight, as a new list."""
        return [operation for *_, messages in self._groups for operation in operations_of(messages)]

    @property
    def first(self) -> Operation:
        """The first operation in flight."""
        return operations_of(self._groups[0][4])[0]

    @property
    def sent_first(self) -> float:
        """When the first operation in flight was sent; 0 where none is."""
        return self._groups[0][3] if self._groups else 0.0

    @property
    def answered(self) -> int:
        """How many messages of the first group have answers, where all of them have one reply subject."""
        return self._answered[0]

    @property
    def all_answered(self) -> bool:
        """Whether there is a PubAck on every message, of which each has requested its own."""
        return all(name in self.pub_acks for name, *_ in self._groups)

    def begin(self, last: int) -> None:
        """Set the target's last sequence, before anything is sent."""
        self.last, self.placed = last, (0, last)

    def count_no_copies(self, operations: list[Operation]) -> None:
        """Do not count the next operations as copied."""
        self._counted |= {name for name, _ in operations}

    def was_counted(self, name: bytes) -> bool:
        """Whether a message was counted as copied when it was sent before; forgets it."""
        known = name in self._counted
        self._counted.discard(name)
        return known

    # -- what is sent ------------------------------------------------------------------------------------------------

    def add(self, messages: list[Operation] | Bundle, now: float) -> bytes:
        """Return what to write for messages that follow those in flight.

        Args:
            messages: with their names, without reply subjects.
            now: the loop's time.
        """
        if not self.count:
            self._individual = False
            self._doubted.clear()  # what was skipped
            self._placed.clear()
        if self.grouping:
            return (
                self._last_requests(messages, now)
                if isinstance(messages, list)
                else self._last_of_bundle_requests(messages, now)
            )
        if self._individual or not self._shares:
            return self._each_requests(operations_of(messages), now)
        return (
            self._all_share_a_reply(messages, now)
            if isinstance(messages, list)
            else self._all_of_bundle_share_a_reply(messages, now)
        )

    def with_reply(self, operation: Operation) -> bytes:
        """The operation of a message with its own reply subject."""
        name, data = operation
        subject_end = data.index(b" ", 5) + 1
        return b"%b%b%b %b" % (data[:subject_end], self._inbox, name, data[subject_end:])

    def _last_requests(self, operations: list[Operation], now: float) -> bytes:
        parts = []
        for start in range(0, len(operations), _GROUP):
            group = operations[start : start + _GROUP]
            self._begin_group(group[-1][0], len(group), size_of(group), now, group)
            parts += [data for _, data in group[:-1]]
            parts.append(self.with_reply(group[-1]))
        return b"".join(parts)

    def _all_share_a_reply(self, operations: list[Operation], now: float) -> bytes:
        parts = []
        for start in range(0, len(operations), _GROUP):
            group = operations[start : start + _GROUP]
            name = _SHARED + group[-1][0]
            self._begin_group(name, len(group), size_of(group), now, group)
            reply = self._inbox + name
            for _, data in group:
                subject_end = data.index(b" ", 5) + 1
                parts.append(b"%b%b %b" % (data[:subject_end], reply, data[subject_end:]))
        return b"".join(parts)

    def _each_requests(self, operations: list[Operation], now: float) -> bytes:
        self._groups.extend([(operation[0], 1, len(operation[1]), now, [operation]) for operation in operations])
        self.count += len(operations)
        self.size += size_of(operations)
        return b"".join([self.with_reply(operation) for operation in operations])

    def _begin_group(self, name: bytes, count: int, size: int, now: float, messages: Messages) -> None:
        self._groups.append((name, count, size, now, messages))
        self.count += count
        self.size += size

    def _last_of_bundle_requests(self, bundle: Bundle, now: float) -> bytes:
        """Do `_last_requests` for a bundle."""
        count, names = len(bundle), bundle.names
        replies = [b""] * count
        rest = bundle.size
        for start in range(0, count, _GROUP):
            stop = min(start + _GROUP, count)
            name = b"%d" % names[stop - 1]
            replies[stop - 1] = self._inbox + name
            size = rest * (stop - start) // (count - start)  # the last one's is all that is left
            rest -= size
            self._begin_group(name, stop - start, size, now, BundleSlice(bundle, start, stop))
        return bundle.written(replies)

    def _all_of_bundle_share_a_reply(self, bundle: Bundle, now: float) -> bytes:
        """Do `_all_share_a_reply` for a bundle, which is one group."""
        count = len(bundle)
        name = b"%b%d" % (_SHARED, bundle.names[-1])
        self._begin_group(name, count, bundle.size, now, BundleSlice(bundle, 0, count))
        return bundle.written(self._inbox + name)

    def ask_again(self, now: float) -> bytes:
        """Return what to write to learn of each message in flight; with groups, also of those just before.

        Raises:
            LostTrackError: it was sent so long ago that it could be stored twice.
        """
        since = now - self._remembered
        known: list[Operation] = []
        if not self._doubted:
            self._doubted_after = self.last
            self._placed.clear()
        if self.grouping:
            self.grouping = False
            for sent, before, group in self._confirmed:
                if sent > since:
                    known += operations_of(group)
                    self._doubted_after = min(self._doubted_after, before)
            self._confirmed.clear()
        if self._groups and self.sent_first < since:
            raise LostTrackError("it is unknown what the target has stored, and it may have forgotten the ids")
        self._counted |= {name for name, _ in known}
        doubted = known + self.operations
        self._doubted = {name for name, _ in doubted}
        self._last_doubted = 0
        self._groups.clear()
        self.count = self.size = 0
        self.pub_acks.clear()
        self._answered = _NOTHING
        self._ahead.clear()
        self._individual = True
        self._counters.asked_again += len(doubted)
        return self._each_requests(doubted, now)

    # -- what is answered --------------------------------------------------------------------------------------------

    def take(self, answers: list[Delivered], now: float) -> int:
        """Confirm what answers say is stored, as long as they come as they should; how many were read."""
        if not self._groups or self.pub_acks or self._doubted:
            return 0
        return self._take_shared(answers, now) if self._groups[0][0].startswith(_SHARED) else self._take(answers, now)

    def _take(self, answers: list[Delivered], now: float) -> int:
        groups, good, start = self._groups, self._good, len(self._inbox)
        digits = len(good)
        stored: list[_Group] = []
        before: list[int] = []
        for subject, _, _, payload in answers:
            if not groups or not payload.startswith(good):
                break
            group = groups[0]
            name, count = group[0], group[1]
            number = payload[digits:-1]
            if subject[start:] != name or not number.isdigit():
                break
            last = int(number)
            if last <= self.last or (count > 1 and last - self.last != count):
                break
            if self._keeps and last != int(name):
                break
            before.append(self.last)
            self.last = last
            stored.append(group)
            groups.popleft()
        self._confirm(stored, now, before)
        return len(stored)

    def _take_shared(self, answers: list[Delivered], now: float) -> int:
        """Where all ask, nothing is read one by one if every answer says "stored"."""
        if self._all_stored.fullmatch(b"".join([payload for *_, payload in answers])) is None:
            return 0
        groups, digits = self._groups, len(self._good)
        subjects = [subject for subject, *_ in answers]
        done = 0
        stored: list[_Group] = []
        while groups and done < len(answers):
            group = groups[0]
            name, count = group[0], group[1]
            answered, repeats, before = self._answered
            take = min(count - answered, len(answers) - done)
            if subjects[done : done + take] != [self._inbox + name] * take:
                break
            last = int(answers[done + take - 1][3][digits:-1])
            if last - max(before, self.last) < take:
                break
            done += take
            if answered + take < count:
                self._answered = (answered + take, repeats, last)
                break
            self.last = last
            self._count_repeats(repeats)
            self._next_group()
            stored.append(group)
        self._confirm(stored, now)
        return done

    def sort_out(self, answers: list[Delivered], now: float) -> tuple[bool, bool]:
        """Handle the answers that `take` has left.

        Returns:
            Whether messages must be sent again, and whether the target did not store something.

        Raises:
            LostTrackError: the answers do not show what is stored.
            RuleRefusedError: another stream answers, or sequences cannot be kept.
        """
        start = len(self._inbox)
        expected = {name for name, *_ in self._groups}
        unclear = unstored = False
        for subject, _, block, payload in answers:
            name = subject[start:]
            if name not in expected:
                continue  # of a message that was sent twice
            pub_ack = PubAck.parse(block, payload)
            self._check(name, pub_ack)
            stored = pub_ack.kind in ("stored", "duplicate")
            unstored |= not stored
            if pub_ack.kind == "stored":
                self._learn(payload)
            if not name.startswith(_SHARED):
                self.pub_acks[name] = pub_ack
            elif stored:
                self._take_one(name, pub_ack)
            else:
                unclear = True
        self.take_off(now)
        return unclear or bool(self.grouping and self.pub_acks), unstored

    def _check(self, name: bytes, pub_ack: PubAck) -> None:
        if pub_ack.kind in ("stored", "duplicate") and pub_ack.stream != self._stream:
            raise RuleRefusedError(
                f"stream '{pub_ack.stream}' takes copies meant for '{self._stream}': their subjects overlap"
            )
        if self._keeps and pub_ack.sequence and pub_ack.sequence != int(name):
            why = "another client writes to that stream, or a change of leaders left messages out"
            if pub_ack.kind == "duplicate":
                why = "its message id is that of an earlier message: shorten the stream's duplicate_window"
            elif (
                refused := next((each for each in self.pub_acks.items() if each[1].kind == "refused"), None)
            ) is not None:
                why = f"it refused message {refused[0].decode()}: {refused[1].description} ({refused[1].err_code})"
            raise RuleRefusedError(
                f"stream '{self._stream}' has message {name.decode()} of the source as {pub_ack.sequence}, so"
                f" sequences can be kept no longer: {why}"
            )
        if pub_ack.kind == "later" and not pub_ack.stream:
            # No responders: the stream has no leader, or it was deleted, and may come back as another one.
            raise LostTrackError(pub_ack.description)
        if pub_ack.kind == "stored" and pub_ack.sequence <= self.last:
            raise LostTrackError("the target is a new stream, or lost the end of its store")

    def take_off(self, now: float) -> None:
        """Confirm what has PubAcks, up to the first that is unknown or not taken."""
        while self._groups:
            group, before = self._groups[0], self.last
            name, count = group[0], group[1]
            if name.startswith(_SHARED):
                answered, repeats, last = self._answered
                if answered < count:
                    return
                self.last = max(self.last, last)
                self._count_repeats(repeats)
            elif not self._take_pub_ack(name, count):
                return
            self._next_group()
            self._confirm([group], now, None if name in self._counted else [before])

    def _take_pub_ack(self, name: bytes, count: int) -> bool:
        """Whether the first group is stored, by the PubAck that one message requested."""
        pub_ack = self.pub_acks.get(name)
        if pub_ack is None or pub_ack.kind not in ("stored", "duplicate"):
            return False
        if count > 1 and (pub_ack.kind != "stored" or pub_ack.sequence - self.last != count):
            return False
        del self.pub_acks[name]
        doubted = name in self._doubted
        self._doubted.discard(name)
        if pub_ack.kind == "duplicate" and not (doubted and self._is_own(pub_ack.sequence)):
            self._counters.duplicates += 1
            self._counters.copied -= name in self._counted
            self._counted.add(name)
            return True
        if doubted:
            self._placed.add(pub_ack.sequence)
            self._counters.out_of_order += pub_ack.sequence < self._last_doubted
            self._last_doubted = pub_ack.sequence
        self.last = max(self.last, pub_ack.sequence)
        return True

    def _is_own(self, sequence: int) -> bool:
        """Whether a message there may be the one that was sent before, and not another one with the same id.

        A cluster that is still storing it may give no sequence.
        """
        return not sequence or (sequence > self._doubted_after and sequence not in self._placed)

    def forget_names(self) -> None:
        """Begin with new names, which may be those of earlier messages; nothing may be in flight."""
        self._confirmed.clear()
        self._counted.clear()
        self.last_confirmed = 0
        self.placed = (0, self.last)

    def skip(self) -> None:
        """Skip the first message, which the target has rejected."""
        name, _, size, *_ = self._groups.popleft()
        self.last_confirmed = int(name)
        self.count -= 1
        self.size -= size

    def _next_group(self) -> None:
        self._groups.popleft()
        self._answered = self._ahead.pop(self._groups[0][0], _NOTHING) if self._groups else _NOTHING

    def _learn(self, answer: bytes) -> None:
        """Learn the target's form of "stored"."""
        good = answer[: answer.rindex(b":") + 1]
        if good != self._good:
            self._good, self._all_stored = good, re.compile(b"(?:%b[0-9]+})*" % re.escape(good))

    def _take_one(self, name: bytes, pub_ack: PubAck) -> None:
        """Count an answer to one of a group that all ask."""
        first = name == self._groups[0][0]
        answered, repeats, last = self._answered if first else self._ahead.get(name, _NOTHING)
        repeated = pub_ack.kind == "duplicate"
        counted = (answered + 1, repeats + repeated, last if repeated else pub_ack.sequence)
        if first:
            self._answered = counted
        else:
            self._ahead[name] = counted

    def _count_repeats(self, repeats: int) -> None:
        self._counters.duplicates += repeats
        self._counters.copied -= repeats  # they are among the group's, which are all counted as copied

    def _confirm(self, stored: list[_Group], now: float, before: list[int] | None = None) -> None:
        """Remove the first groups: they are stored.

        Args:
            stored: these groups.
            now: the loop's time.
            before: the target's last sequence before each; None if they need not be sent again.
        """
        if not stored:
            return
        self.has_stored = True
        count = sum([group[1] for group in stored])
        self.count -= count
        self.size -= sum([group[2] for group in stored])
        if self._counted:
            again = {name for *_, messages in stored for name, _ in operations_of(messages)} & self._counted
            self._counted -= again
            count -= len(again)
        self._counters.copied += count
        self.last_confirmed = int(stored[-1][0].removeprefix(_SHARED))
        if self.last > self.placed[1]:
            self.placed = (self.last_confirmed, self.last)
        if self.grouping and before is not None:
            self._confirmed.extend([(now, last, group[4]) for group, last in zip(stored, before, strict=True)])
