"""Accounts for the messages in flight to a stream, in their order.

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
duplicates of 40, 41    [5]              1      4               92    (2, 92)    3 and 4 are in `uncounted`
refused: skipped        -                0      5               92    (2, 92)    `copied` is 2
```

Its callers are the ways to request PubAcks: they `append` written messages, remove stored groups from the front of
`groups`, set `last`, and `confirm` the removed groups.

Invariants:

* `count` and `size` are the sums over `groups`.
* Names in `groups` increase.
* Everything up to `last_confirmed` is stored, a duplicate, or skipped. It decreases only after
  `Unconfirmed.request_again`, which puts confirmed messages back in front, to be confirmed again.
* `last` never decreases.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from nats_bridge.kinds.copying.counters import CopyCounters
from nats_bridge.kinds.copying.writing.bundle import Messages, operations_of
from nats_bridge.kinds.copying.writing.encoder import Operation

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

    Args:
        counters: the counters to update.

    Attributes:
        counters: the same.
        groups: the groups in flight, in the order in which they were sent.
        count: the number of messages in these groups.
        size: their bytes.
        last: the stream's last sequence when the newest message was confirmed.
        last_confirmed: the name up to which everything is stored or skipped; 0 for none.
        placed: the name of the newest message that was stored (not a duplicate), and its sequence; the name is 0
            for none.
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

    def begin(self, last: int) -> None:
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
