"""Accounts for the messages in flight to a stream, in their order, and limits them.

The problem: thousands of messages are in flight at once, and only few of the stream's answers show where messages are
stored. A message may only be reported as stored when it is, because the source may delete it then.

The idea: messages in flight are a queue of groups. They join at its end when they are written, and leave at its front
when the stream has answered for the group. So one name marks how far everything is stored: `last_confirmed`. Answers
for groups further back wait in `pub_ack_requests` until all groups before them are answered.

Example: messages are named after their sequences in the source, and a group has two of them. The target ended at 90.

```text
written                 groups           count  last_confirmed  last  placed
1 2 | 3 4 | 5           [2] [4] [5]      5      0               90    (0, 90)
stored: 91, 92          [4] [5]          3      2               92    (2, 92)
duplicates of 40, 41    [5]              1      4               92    (2, 92)    `copied` stays 2
refused: skipped        -                0      5               92    (2, 92)
```

Its callers are the ways to request PubAcks: they `append` written messages, remove stored groups from the front of
`groups`, set `last`, and `confirm` the removed groups.

Invariants:

* `count` and `size` are the sums over `groups`.
* Names in `groups` increase.
* Everything up to `last_confirmed` is stored, a duplicate, or skipped. It decreases only after
  `Unconfirmed.request_again`, which puts confirmed messages back in front, to be confirmed again, and is 0 after
  `forget_names`.
* `last` never decreases.

`Window` limits how many messages are in flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self, TypeAlias

from nats_bridge.client.pub_ack import StoredAnswer
from nats_bridge.kinds.copying.counters import CopyCounters
from nats_bridge.kinds.copying.encoder import Operation
from nats_transforms.dialect import server_dialect


class Bundle(Protocol):
    """Messages to publish, in order, whose bytes are made once it is known which of them request a PubAck.

    A pipeline on Spark has columns instead of messages, and making a Python object for each message costs more than
    everything else. So messages in flight may be a bundle instead of a list of operations, and operations are made from
    it only after a failure. An empty bundle is not sent.
    """

    @property
    def names(self) -> Sequence[int]:
        """The messages' names, as numbers that increase."""

    @property
    def size(self) -> int:
        """The approximate number of bytes; bytes common to all messages may be left out."""

    def __len__(self) -> int:
        """Return the number of messages."""

    def written(self, replies: bytes | list[bytes]) -> bytes:
        """Return the bytes to write.

        Args:
            replies: the reply subject of all messages, or one for each; empty for none.
        """

    def operations(self, start: int, stop: int) -> list[Operation]:
        """Return the operations of a slice, one by one, without reply subjects."""


@dataclass(frozen=True, slots=True)
class BundleSlice:
    """A slice of a bundle's messages."""

    bundle: Bundle
    start: int
    stop: int


Messages: TypeAlias = list[Operation] | BundleSlice


def operations_of(messages: Messages | Bundle) -> list[Operation]:
    """Return the messages one by one."""
    if isinstance(messages, list):
        return messages
    if isinstance(messages, BundleSlice):
        return messages.bundle.operations(messages.start, messages.stop)
    return messages.operations(0, len(messages))


def size_of(messages: list[Operation] | Bundle) -> int:
    """Return the approximate number of bytes."""
    return sum([len(data) for _, data in messages]) if isinstance(messages, list) else messages.size


SHARED = b"g"
"""Begins the name of a group whose messages all request PubAcks, with one reply subject."""


@dataclass(slots=True, eq=False)
class MessageGroup:
    """Messages in flight that one name stands for.

    Attributes:
        name: the end of the reply subject of its messages that request a PubAck.
        number: the number of its messages.
        size: their bytes.
        sent: when they were sent, in seconds of the loop's time.
        messages: the messages, without reply subjects.
    """

    name: bytes
    number: int
    size: int
    sent: float
    messages: Messages

    @property
    def last(self) -> int:
        """The name of its last message, as a number."""
        return int(self.name.removeprefix(SHARED))


class MessagesInFlight:
    """The messages in flight to one stream.

    Attributes:
        groups: the groups in flight, in the order in which they were sent.
        count: the number of messages in these groups.
        size: their bytes.
        last: the stream's last sequence when the newest message was confirmed.
        last_confirmed: the name up to which everything is stored or skipped; 0 for none.
        placed: a name up to which everything is confirmed, and the sequence of the newest message stored until then;
            the name is 0 for none.
        has_stored: whether any message is known to be stored.
        uncounted: names of messages that do not count as copied when they are confirmed: they were counted before, or
            are duplicates or fillers.
    """

    def __init__(self, counters: CopyCounters) -> None:
        self.counters = counters
        self.groups: deque[MessageGroup] = deque()
        self.count = 0
        self.size = 0
        self.last = 0
        self.last_confirmed = 0
        self.placed = (0, 0)
        self.has_stored = False
        self.uncounted: set[bytes] = set()

    def continue_after(self, last: int) -> None:
        """Set the stream's last sequence, before anything is sent."""
        self.last, self.placed = last, (0, last)

    def append(self, groups: Iterable[MessageGroup], count: int, size: int) -> None:
        """Append groups that are sent now. `count` and `size` are their totals."""
        self.groups.extend(groups)
        self.count += count
        self.size += size

    def clear(self) -> list[Operation]:
        """Remove everything. Return the operations."""
        operations = self.operations
        self.groups.clear()
        self.count = self.size = 0
        return operations

    @property
    def operations(self) -> list[Operation]:
        """The operations in flight, as a new list."""
        return [operation for group in self.groups for operation in operations_of(group.messages)]

    def confirm(self, stored: list[MessageGroup]) -> None:
        """Count groups as stored that were removed from the front of `groups`. `last` is already set."""
        if not stored:
            return
        self.has_stored = True
        count = sum([group.number for group in stored])
        self.count -= count
        self.size -= sum([group.size for group in stored])
        if self.uncounted:
            again = {name for group in stored for name, _ in operations_of(group.messages)} & self.uncounted
            self.uncounted -= again
            count -= len(again)
        self.counters.copied += count
        self.last_confirmed = stored[-1].last
        if self.last > self.placed[1]:
            self.placed = (self.last_confirmed, self.last)

    def skip(self) -> None:
        """Remove the first message, which is in a group by itself, because the stream has rejected it."""
        group = self.groups.popleft()
        self.last_confirmed = group.last
        self.count -= 1
        self.size -= group.size

    def forget_names(self) -> None:
        """Start with new names, which may repeat earlier ones. Nothing may be in flight."""
        self.uncounted.clear()
        self.last_confirmed = 0
        self.placed = (0, self.last)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline of messages to one stream, which the ways to request PubAcks share.

    Attributes:
        in_flight: the messages in flight. A way appends to them and confirms them.
        inbox: the prefix of reply subjects, including the last dot.
        keeps_sequence: whether every message must be stored under the sequence that is its name.
        stored: the form of the answers.
    """

    in_flight: MessagesInFlight
    inbox: bytes
    keeps_sequence: bool = False
    stored: StoredAnswer = field(default_factory=StoredAnswer)


LEAST, LEAST_SIZE = 8192, 16 << 20
"""Messages and bytes that may always be in flight, at any distance.

Servers of 2.11 refuse messages while more than 10,000 wait for a stream, so the limit stays there.
"""

MOST, MOST_SIZE = 65_536, 64 << 20
"""Messages, and bytes, that may be in flight however far the target is.

Servers from 2.12 on refuse messages while more than 100,000 messages or 128 MiB wait for a stream. A message in flight
takes about 150 bytes of memory in addition to its own.
"""

CHECKED_COPIES = 2 * MOST
"""The newest copies among which every gap shows.

A copy can be lost while later ones in the window are stored, at most `MOST`. A round that repairs this sends the
missing copies and new ones, and may be interrupted in the same way, which adds as many again.
"""

GAIN = 2
"""Multiple of the messages on the way that the window has, in addition to its fixed part."""

_SHORTEST_ROUND = 0.05  # seconds; in a shorter time, confirmations that come together would look like a high rate
_ROUNDS = 8  # whose highest rate counts
_AGED = 10.0  # seconds until a round trip of an empty pipeline may take the place of a shorter one


class Window:
    """Limits the messages in flight by the distance of the target. Its user reports sent and confirmed messages.

    In each round trip, a fixed window transports at most its own size. 8,192 messages are plenty for a target
    nearby, but limit the rate to 41,000 messages/s at 200 ms. So the window has a fixed part and, in addition,
    twice the number of messages that fit on the way: the highest rate at which the target has confirmed lately,
    times the round trip (BBR's bandwidth-delay product and gain). Once would be enough if messages and
    confirmations came evenly. But they come in bursts, and a sender with a full window has to wait. As long as the
    window is the limit, each round trip confirms more than the previous one, and the window nearly doubles, until
    the target or the sender is the limit. When less is sent, the rate falls, and the window with it.

    The round trip is measured with an empty pipeline. In a full one, messages also wait for the target, and a
    window that grew with that time would make them wait longer. A shorter measurement always counts; only another
    one with an empty pipeline can make it longer.

    Bounds for each rule: `LEAST` and `LEAST_SIZE` for each source, plus the difference to `MOST` and `MOST_SIZE`,
    which its sources share. The number of copies that a start reads, to find lost ones among later ones, follows
    from these bounds (`CHECKED_COPIES`), because a start cannot know how large the window was.

    Args:
        most: messages in flight at most.
        most_size: bytes in flight at most.
        least: the messages that may always be in flight; `most` if that is smaller.

    Attributes:
        messages: the present limit of messages in flight.
        size: the limit of their bytes.
        widest: the maximum number of messages that were allowed so far.
        round_trip: seconds to the target and back, including the time to store a message; 0 while unknown.
    """

    def __init__(self, most: int = LEAST, most_size: int = LEAST_SIZE, *, least: int = LEAST) -> None:
        self.messages = self.widest = self._least = min(least, most)
        self.size = self._least_size = min(LEAST_SIZE, most_size)
        self.round_trip = 0.0
        self._most = most
        self._most_size = most_size
        self._measured = 0.0  # when the round trip was
        self._first: float | None = None  # when an empty pipeline was sent something whose confirmation is to come
        self._done = self._done_size = 0
        # the present round trip: its start, and the counts at that time
        self._began: tuple[float, int, int] | None = None
        self._rates: deque[tuple[float, float]] = deque(maxlen=_ROUNDS)  # messages and bytes per second

    @classmethod
    def shared(cls, sources: int, server_version: str) -> Self:
        """Return the window of one of a rule's sources.

        Args:
            sources: the number of the rule's sources.
            server_version: of the target's server.
        """
        if server_dialect(server_version).stream_queue_is_short:
            return cls()
        return cls(LEAST + (MOST - LEAST) // sources, LEAST_SIZE + (MOST_SIZE - LEAST_SIZE) // sources)

    def sent(self, now: float, *, first: bool) -> None:
        """Note that something was sent.

        Args:
            now: in seconds.
            first: whether nothing else is in flight.
        """
        if first:
            self._first = now
        if self._began is None:
            self._began = now, self._done, self._done_size

    def confirmed(self, messages: int, size: int, sent: float, now: float) -> None:
        """Note that the oldest operation in flight is stored.

        Args:
            messages: the number of confirmed messages.
            size: their bytes.
            sent: when the first of them was sent.
            now: in the same seconds.
        """
        self._done += messages
        self._done_size += size
        took, empty = now - sent, sent == self._first
        if not self.round_trip or took < self.round_trip or (empty and now - self._measured >= _AGED):
            self.round_trip, self._measured = took, now
        if empty:
            self._first = None
        if self._began is None:
            return
        began, done, done_size = self._began
        if sent >= began and now - began >= _SHORTEST_ROUND:
            self._rates.append(((self._done - done) / (now - began), (self._done_size - done_size) / (now - began)))
            self._began = now, self._done, self._done_size
            self._fit()

    def _fit(self) -> None:
        rate, size_rate = map(max, zip(*self._rates, strict=True))
        self.messages = min(self._least + int(GAIN * rate * self.round_trip), self._most)
        self.size = min(self._least_size + int(GAIN * size_rate * self.round_trip), self._most_size)
        self.widest = max(self.widest, self.messages)
