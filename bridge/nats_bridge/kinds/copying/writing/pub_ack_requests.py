"""The three ways to request PubAcks, and to read them.

The problem: a PubAck for each message, with a separate reply subject, costs the target's server and the sidecar as much
as the message. The idea: messages that are sent together form a group, and share what they request. All three ways have
one interface, `PubAckRequests`. `publishing.Unconfirmed` chooses one, and changes to another when answers do not fit.
All three are worth it: with a new reply subject each time, a server needs 9.2 µs for a message instead of 6.9
(2.10.27), and still less without a PubAck.

| way | written | what shows that a group is stored | if an answer does not fit |
|---|---|---|---|
| `EachMessage` | every message has its own reply subject | its PubAck | the answer names its message |
| `SharedReply` | a group has one reply subject | as many PubAcks that say "stored" | `EachMessage` |
| `LastOfGroup` | the last of a group has a reply subject | the sequence advanced by the group's size | `EachMessage` |

Each way reads answers twice. `take` is the fast path. It compares bytes with the form of the last answer that said
"stored", as long as answers come for the first group. `note` gets the remaining answers one by one, parsed. Then
`settle` confirms the groups that the noted answers show to be stored.

Invariants:

* The groups in flight were all written by the present way.
* A group is confirmed only when all groups before it are.
* No way attributes an answer to another message. In doubt it is `unclear`, and everything is sent again, with ids.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from nats_bridge.client.pub_ack import PubAck
from nats_bridge.client.wire import Delivered
from nats_bridge.kinds.copying.encoder import Operation
from nats_bridge.kinds.copying.writing.in_flight import (
    SHARED,
    Bundle,
    BundleSlice,
    MessageGroup,
    Messages,
    Pipeline,
    operations_of,
    size_of,
)

_GROUP = 64  # messages per group, but a bundle whose messages all request PubAcks is one group
_RECENT_GROUPS = 16  # confirmed groups that are sent again when the numbers stop fitting


@dataclass(slots=True)
class AnswerTally:
    """The answers for a group so far."""

    answers: int = 0
    duplicates: int = 0
    last: int = 0  # the last sequence in "stored" answers


class PubAckRequests(ABC):
    """One way to request PubAcks for the messages of a pipeline."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._in_flight = pipeline.in_flight
        self._inbox = pipeline.inbox
        self._stored = pipeline.stored
        self._keeps = pipeline.keeps_sequence
        self._unclear = False

    @abstractmethod
    def write(self, messages: list[Operation] | Bundle, now: float) -> bytes:
        """Return what to write for messages that follow those in flight.

        Args:
            messages: with their names, without reply subjects.
            now: the loop's time.
        """

    @abstractmethod
    def take(self, answers: list[Delivered], now: float) -> int:
        """Confirm the groups that answers show as stored, as long as they arrive in the expected form.

        Returns:
            The number of answers that were read; the others go to `note`.
        """

    @abstractmethod
    def note(self, name: bytes, pub_ack: PubAck) -> None:
        """Keep an answer to a group in flight until `settle`."""

    @abstractmethod
    def settle(self, now: float) -> None:
        """Confirm groups by noted answers, up to the first group that is unknown or not stored."""

    @property
    def unclear(self) -> bool:
        """Whether the noted answers do not show which messages are stored, so that all must be sent again."""
        return self._unclear

    @property
    def refusal(self) -> tuple[bytes, PubAck] | None:
        """The name of a message that a noted answer refuses, and that answer; None without one."""
        return None

    def recent(self, since: float) -> list[tuple[int, Messages]]:
        """Return messages confirmed since a time, whose confirmation may turn out to be wrong.

        Returns:
            The stream's last sequence before each group, and its messages.
        """
        return []

    def with_reply(self, operation: Operation) -> bytes:
        """Return the operation of a message with its own reply subject."""
        name, data = operation
        subject_end = data.index(b" ", 5) + 1
        return b"%b%b%b %b" % (data[:subject_end], self._inbox, name, data[subject_end:])


class SharedReply(PubAckRequests):
    """All messages of a group request PubAcks, with one reply subject.

    If the number of "stored" PubAcks equals the group's size, all its messages are stored. Any other PubAck does not
    name its message. Example: the target ended at 90, and refuses message 6 because it is full.

    ```text
    time  written                answers                     then
    0 ms  1 2 3, reply g3
    1 ms  4 5 6, reply g6
    2 ms                         g3: 91, 92                  2 of 3 answers for [g3]
    3 ms                         g3: 93                      [g3] is stored: last_confirmed 3, last 93
    4 ms                         g6: 94, 95, refused         unclear: `EachMessage` sends 4 5 6 again
    ```

    Duplicates are counted, and do not cause messages to be sent again. In a cluster they overtake messages that are
    being replicated, so answers can come for a later group first.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(pipeline)
        self._first = AnswerTally()  # of the first group in flight
        self._later: dict[bytes, AnswerTally] = {}  # of other groups, by name

    @property
    def answers_for_first(self) -> int:
        """The number of messages of the first group that have answers."""
        return self._first.answers

    def write(self, messages: list[Operation] | Bundle, now: float) -> bytes:
        """See `PubAckRequests`."""
        if not isinstance(messages, list):
            name, count, size = b"%b%d" % (SHARED, messages.names[-1]), len(messages), messages.size
            whole = BundleSlice(messages, 0, count)
            self._in_flight.append([MessageGroup(name, count, size, now, whole)], count, size)
            return messages.written(self._inbox + name)
        parts = []
        for start in range(0, len(messages), _GROUP):
            group = messages[start : start + _GROUP]
            name, size = SHARED + group[-1][0], size_of(group)
            self._in_flight.append([MessageGroup(name, len(group), size, now, group)], len(group), size)
            reply = self._inbox + name
            for _, data in group:
                subject_end = data.index(b" ", 5) + 1
                parts.append(b"%b%b %b" % (data[:subject_end], reply, data[subject_end:]))
        return b"".join(parts)

    def take(self, answers: list[Delivered], now: float) -> int:
        """See `PubAckRequests`. Answers are not read one by one if all of them are "stored"."""
        payloads = [payload for *_, payload in answers]
        # The answer of no responders is empty, and must not count as a "stored" one.
        if b"" in payloads or self._stored.repeated.fullmatch(b"".join(payloads)) is None:
            return 0
        in_flight, digits = self._in_flight, len(self._stored.beginning)
        groups = in_flight.groups
        subjects = [subject for subject, *_ in answers]
        done = 0
        stored: list[MessageGroup] = []
        while groups and done < len(answers):
            group, tally = groups[0], self._first
            fresh = min(group.number - tally.answers, len(answers) - done)
            if subjects[done : done + fresh] != [self._inbox + group.name] * fresh:
                break
            last = int(answers[done + fresh - 1][3][digits:-1])
            if last - max(tally.last, in_flight.last) < fresh:
                break
            done += fresh
            if tally.answers + fresh < group.number:
                tally.answers += fresh
                tally.last = last
                break
            in_flight.last = last
            stored.append(self._next(tally.duplicates))
        in_flight.confirm(stored)
        return done

    def note(self, name: bytes, pub_ack: PubAck) -> None:
        """See `PubAckRequests`."""
        if pub_ack.kind not in ("stored", "duplicate"):
            self._unclear = True  # it does not show which message it is about
            return
        is_first = name == self._in_flight.groups[0].name
        tally = self._first if is_first else self._later.setdefault(name, AnswerTally())
        tally.answers += 1
        if pub_ack.kind == "duplicate":
            tally.duplicates += 1
        else:
            tally.last = pub_ack.sequence

    def settle(self, now: float) -> None:
        """See `PubAckRequests`."""
        in_flight = self._in_flight
        while in_flight.groups and self._first.answers >= in_flight.groups[0].number:
            in_flight.last = max(in_flight.last, self._first.last)
            in_flight.confirm([self._next(self._first.duplicates)])

    def _next(self, duplicates: int) -> MessageGroup:
        """Remove the first group. Its duplicates are subtracted, because `confirm` counts them as copied."""
        groups, counters = self._in_flight.groups, self._in_flight.counters
        group = groups.popleft()
        counters.duplicates += duplicates
        counters.copied -= duplicates
        self._first = self._later.pop(groups[0].name, AnswerTally()) if groups else AnswerTally()
        return group


class _OneAnswer(PubAckRequests):
    """A way with one PubAck for each group, which names the group by its last message.

    Attributes:
        pub_acks: noted answers, by the name of the message.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(pipeline)
        self.pub_acks: dict[bytes, PubAck] = {}

    def take(self, answers: list[Delivered], now: float) -> int:
        """See `PubAckRequests`."""
        if self.pub_acks:
            return 0
        in_flight, beginning, start = self._in_flight, self._stored.beginning, len(self._inbox)
        groups, digits = in_flight.groups, len(beginning)
        previous = in_flight.last
        stored: list[MessageGroup] = []
        before: list[int] = []
        for subject, _, _, payload in answers:
            if not groups or not payload.startswith(beginning):
                break
            group = groups[0]
            sequence = payload[digits:-1]
            if subject[start:] != group.name or not sequence.isdigit():
                break
            last = int(sequence)
            if last <= previous or (group.number > 1 and last - previous != group.number):
                break
            if self._keeps and last != group.last:
                break
            before.append(previous)
            previous = last
            stored.append(group)
            groups.popleft()
        in_flight.last = previous
        in_flight.confirm(stored)
        self._remember(stored, before, now)
        return len(stored)

    def note(self, name: bytes, pub_ack: PubAck) -> None:
        """See `PubAckRequests`."""
        self.pub_acks[name] = pub_ack

    def settle(self, now: float) -> None:
        """See `PubAckRequests`."""
        in_flight = self._in_flight
        while in_flight.groups:
            group, before = in_flight.groups[0], in_flight.last
            pub_ack = self.pub_acks.get(group.name)
            if pub_ack is None or not self._shows_stored(group, pub_ack):
                return
            del self.pub_acks[group.name]
            self._accept(group.name, pub_ack)
            in_flight.groups.popleft()
            if group.name not in in_flight.uncounted:
                self._remember([group], [before], now)
            in_flight.confirm([group])

    @property
    def refusal(self) -> tuple[bytes, PubAck] | None:
        """See `PubAckRequests`."""
        return next((each for each in self.pub_acks.items() if each[1].kind == "refused"), None)

    def _shows_stored(self, group: MessageGroup, pub_ack: PubAck) -> bool:
        if group.number == 1:
            return pub_ack.kind in ("stored", "duplicate")
        return pub_ack.kind == "stored" and pub_ack.sequence - self._in_flight.last == group.number

    def _accept(self, name: bytes, pub_ack: PubAck) -> None:
        """Note the sequence of the first group."""
        in_flight = self._in_flight
        if pub_ack.kind == "duplicate":
            self._count_duplicate(name)
        else:
            in_flight.last = max(in_flight.last, pub_ack.sequence)

    def _count_duplicate(self, name: bytes) -> None:
        in_flight = self._in_flight
        in_flight.counters.duplicates += 1
        in_flight.counters.copied -= name in in_flight.uncounted
        in_flight.uncounted.add(name)

    def _remember(self, stored: list[MessageGroup], before: list[int], now: float) -> None:
        """Remember groups that are confirmed, and the stream's last sequence before each, if they may be wrong."""


class LastOfGroup(_OneAnswer):
    """Only the last message of a group requests a PubAck.

    The PubAck has a sequence. If that has advanced by exactly the size of the group, all its messages are stored,
    because nothing else writes to the stream. So this way needs a target with one replica, that only this rule writes
    to and that accepts everything. The connection has no echo and subscribes to the target's subjects, so it notices
    other writers. Example: the target ended at 90, and another client writes 97.

    ```text
    time  written                   answers       then
    0 ms  1 2 3, reply of 3: "3"
    1 ms  4 5 6, reply of 6: "6"
    2 ms                            "3": 93       93 - 90 = 3, so [3] is stored
    3 ms  7 8 9, reply of 9: "9"    "6": 96       96 - 93 = 3, so [6] is stored
    4 ms                            "9": 100      100 - 96 is not 3, so it is unclear: one of 7 8 9 may be missing
    5 ms  1 … 9 again, each with its own reply subject (`EachMessage`)
    ```

    Groups that were confirmed just before are sent again as well (1 … 6): the other client may have written earlier, in
    the place of a message that was not stored. Ids keep all of them from being stored twice.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(pipeline)
        self._recent: deque[tuple[float, int, Messages]] = deque(maxlen=_RECENT_GROUPS)

    @property
    def unclear(self) -> bool:
        """Whether a noted answer does not fit."""
        return bool(self.pub_acks)

    def write(self, messages: list[Operation] | Bundle, now: float) -> bytes:
        """See `PubAckRequests`."""
        count = len(messages)
        if not isinstance(messages, list):
            replies, groups = [b""] * count, []
            names, rest = messages.names, messages.size
            for start in range(0, count, _GROUP):
                stop = min(start + _GROUP, count)
                name = b"%d" % names[stop - 1]
                replies[stop - 1] = self._inbox + name
                size = rest * (stop - start) // (count - start)  # the last one gets the rest
                rest -= size
                groups.append(MessageGroup(name, stop - start, size, now, BundleSlice(messages, start, stop)))
            self._in_flight.append(groups, count, messages.size)
            return messages.written(replies)
        parts = []
        for start in range(0, count, _GROUP):
            group = messages[start : start + _GROUP]
            size = size_of(group)
            self._in_flight.append([MessageGroup(group[-1][0], len(group), size, now, group)], len(group), size)
            parts += [data for _, data in group[:-1]]
            parts.append(self.with_reply(group[-1]))
        return b"".join(parts)

    def recent(self, since: float) -> list[tuple[int, Messages]]:
        """See `PubAckRequests`."""
        return [(before, messages) for confirmed, before, messages in self._recent if confirmed > since]

    def forget_recent(self) -> None:
        """Forget confirmed messages, because names begin again."""
        self._recent.clear()

    def _remember(self, stored: list[MessageGroup], before: list[int], now: float) -> None:
        self._recent.extend([(now, last, group.messages) for group, last in zip(stored, before, strict=True)])


class EachMessage(_OneAnswer):
    """Every message requests its own PubAck. Its reply subject ends in its name.

    Only this way shows which message was not stored, so the others fall back to it. It is the first choice if copies
    must keep their sequences, or if the target forgets ids too soon to send anything again. Example: messages 4, 5 and
    6 went out with one reply subject. The target stored 4 as 94, had no room for 5, and stored 6 as 95.

    ```text
    time  written                  answers                      then
    5 ms  4, 5, 6 with a reply
          subject each
    6 ms                           "4": duplicate, 94           4 is stored
    6 ms                           "5": full                    noted; the publisher's recovery has to decide
    6 ms                           "6": duplicate, 95           noted: 5 is before it
    9 ms  5 again, by the recovery
    10 ms                          "5": 96                      5 is stored, and 6 is; 5 after 6, which is counted
    ```

    A duplicate of a message that was sent again is the message itself, if it is stored after `after` and no other
    message was confirmed with that sequence. Otherwise an earlier message had the same id.

    Args:
        resent: names of messages that were sent before in another way.
        after: the stream's last sequence before the first of them was sent for the first time.
    """

    def __init__(self, pipeline: Pipeline, resent: Iterable[bytes] = (), after: int = 0) -> None:
        super().__init__(pipeline)
        self._resent = set(resent)  # those that are not confirmed yet
        self._after = after
        self._places: set[int] = set()  # the stored sequences of the confirmed ones
        # the stored sequences of confirmed messages, without those that are counted as out of order; ascending
        self._ascending: list[int] = []
        # the lowest sequence of those stored before the first one in flight; 0 for none, infinite if unknown
        self._ahead = math.inf

    @property
    def all_answered(self) -> bool:
        """Whether every message in flight has its PubAck."""
        return all(group.name in self.pub_acks for group in self._in_flight.groups)

    def first_unstored(self) -> tuple[Operation, PubAck]:
        """Return the first operation in flight, to skip or send again, and its PubAck, which is forgotten."""
        operation = operations_of(self._in_flight.groups[0].messages)[0]
        pub_ack = self.pub_acks.pop(operation[0])
        if self._ahead == math.inf:
            stored = (each.sequence for each in self.pub_acks.values() if each.kind == "stored")
            self._ahead = min(stored, default=0)
        return operation, pub_ack

    def write(self, messages: list[Operation] | Bundle, now: float) -> bytes:
        """See `PubAckRequests`."""
        operations = operations_of(messages)
        groups = [MessageGroup(operation[0], 1, len(operation[1]), now, [operation]) for operation in operations]
        self._in_flight.append(groups, len(operations), size_of(operations))
        return b"".join([self.with_reply(operation) for operation in operations])

    def take(self, answers: list[Delivered], now: float) -> int:
        """See `PubAckRequests`. A message that was sent again is examined separately."""
        return 0 if self._resent else super().take(answers, now)

    def _accept(self, name: bytes, pub_ack: PubAck) -> None:
        in_flight, sequence = self._in_flight, pub_ack.sequence
        # Else another message has the same id. A cluster that is still storing this one may report no sequence.
        is_own = pub_ack.kind != "duplicate" or (
            name in self._resent and (not sequence or (sequence > self._after and sequence not in self._places))
        )
        if name in self._resent:
            self._resent.discard(name)
            if is_own:
                self._places.add(sequence)
        if not is_own:
            self._count_duplicate(name)
            return
        in_flight.last = max(in_flight.last, sequence)
        self._count_out_of_order(sequence)

    def _count_out_of_order(self, sequence: int) -> None:
        """Count the confirmed messages that were stored after this later one, each once.

        Count this one at once if the recovery knows such a later one, because its turn may not come in this round.
        """
        places = self._ascending
        if 0 < self._ahead < sequence:
            self._in_flight.counters.out_of_order += 1
            return
        if sequence == self._ahead or not self.pub_acks:
            self._ahead = math.inf
        while sequence and places and places[-1] > sequence:
            places.pop()
            self._in_flight.counters.out_of_order += 1
        if not self._resent and not self.pub_acks:
            places.clear()  # the next messages are stored after these
        elif sequence:
            places.append(sequence)
