"""The states of a reader, and the queue of items that wait for it, without I/O.

Theory of operation. As long as the reader is `flowing`, items are delivered as they arrive. As soon as it must wait,
for a slow target or an answer of the server, one task works, and arriving items join a queue. The task takes the items
from there, one by one, and ends with the last one.

A lost connection makes everything uncertain that arrives after it, because the stream may be another one until the
server answers. So a mark joins the queue, and items after the mark are delivered only after a check.

Worked example: the target is slow, then the connection is lost and comes back.

    event              state     queue              what happens
    batch a, wait      busy                         a is delivered, and the target is awaited
    batch b            busy      b
    lost               busy      b mark
    batch c            busy      b mark c           the connection is back
    a is written       busy      mark c             b is delivered
    b is written       checking  c                  consumer and stream are compared with what was read
    checked            busy                         c is delivered
    c is written       flowing

Invariants:

* One task works in `opening`, `busy`, `checking` and `finishing`; none in the other states.
* In `flowing` and `draining` the queue is empty. In `cut_off` it begins with a mark.
* No item behind a mark is delivered before the check. A reader that closes without a connection drops such items.
* A reader without a position delivers them when it closes: its consumer is gone, and nothing more will arrive.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Literal, TypeAlias

from nats_bridge.client.wire import Delivered
from nats_bridge.states import StateTable

ReaderState: TypeAlias = Literal[
    "new", "opening", "flowing", "busy", "cut_off", "checking", "draining", "finishing", "closed"
]
ReaderEvent: TypeAlias = Literal["open", "opened", "wait", "idle", "lost", "away", "check", "checked", "close", "end"]

READER: StateTable[ReaderState, ReaderEvent] = StateTable(
    """
               open     opened     wait       idle      lost      away     check      checked    close      end
    new        opening  -          -          -         -         -        -          -          draining   closed
    opening    -        busy       -          -         opening   -        -          -          finishing  closed
    flowing    -        -          busy       -         cut_off   -        checking   -          draining   closed
    busy       -        -          -          flowing   busy      cut_off  checking   -          finishing  closed
    cut_off    -        -          -          -         cut_off   -        checking   -          finishing  closed
    checking   -        -          -          flowing   checking  cut_off  checking   busy       finishing  closed
    draining   -        -          finishing  -         -         -        -          -          draining   closed
    finishing  -        finishing  -          draining  -         -        finishing  finishing  finishing  closed
    closed     -        closed     closed     closed    -         -        closed     closed     closed     closed
    """
)
"""`wait`: the sink, or the server, must be awaited. `idle`: the task has nothing left to do. `lost`: the connection is
lost. `away`: it is still lost when a mark is reached. `check`: consumer and stream are compared with what was read.

`opening`: the consumer's numbers are not known yet. `flowing`: items are delivered as they arrive. `busy`: they wait in
the queue. `cut_off`: they wait for the connection, and then for a check. `draining` and `finishing`: the reader closes,
and delivers the items that have arrived.
"""

Queued: TypeAlias = list[Delivered] | tuple[bytes, bytes]
"""A batch, or the reply subject and the header block of a heartbeat or a flow control request."""


class _Mark:
    """Separates queued items that arrived before a lost connection from those that arrived after it."""


MARK: Final = _Mark()


class ReaderLife:
    """The state of one reader.

    Attributes:
        queues: whether arriving items must join the queue.
        queue: the items that wait.
    """

    def __init__(self) -> None:
        self.state: ReaderState = "new"
        self.queues = True
        self.queue: deque[Queued | _Mark] = deque()

    def happened(self, event: ReaderEvent) -> None:
        """Move to the next state.

        Raises:
            IllegalTransitionError: the event must not happen now.
        """
        before, self.state = self.state, READER.after(self.state, event)
        self.queues = self.state not in ("flowing", "draining")
        if event == "lost" and not (self.queue and self.queue[-1] is MARK):
            self.queue.append(MARK)
        elif event == "check" and before == "cut_off":
            self.queue.popleft()  # the mark: this is the check that it asks for

    @property
    def uncertain(self) -> bool:
        """Whether the connection was lost, and the check after that has not begun."""
        return MARK in self.queue

    @property
    def items(self) -> list[Queued]:
        """The items that have arrived and wait."""
        return [item for item in self.queue if not isinstance(item, _Mark)]

    @property
    def closes(self) -> bool:
        """Whether the reader closes, so only items that have already arrived are delivered."""
        return self.state in ("draining", "finishing", "closed")

    def next_item(self, *, connected: bool, durable: bool) -> Queued | Literal["check"] | None:
        """Take the next item from the queue, or "check" for a mark. Return None if the task has nothing left to do.

        Args:
            connected: whether there is a connection.
            durable: whether the next process reads on, so nothing unchecked may be delivered when this reader closes.
        """
        while self.queue:
            item = self.queue.popleft()
            if not isinstance(item, _Mark):
                return item
            if self.state == "finishing" and not durable:
                continue
            if connected:
                return "check"
            if self.state == "finishing":
                self.queue.clear()
                break
            self.queue.appendleft(item)
            self.happened("away")
            return None
        self.happened("idle")
        return None

    def failed(self) -> None:
        """Note that the task has ended with an error."""
        self.discard()
        self.happened("away" if self.queue and not self.closes else "idle")

    def discard(self) -> None:
        """Drop the waiting items, which are from a consumer that is no longer used."""
        uncertain = self.uncertain
        self.queue.clear()
        if uncertain:
            self.queue.append(MARK)
