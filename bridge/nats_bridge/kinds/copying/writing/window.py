"""Limits the messages in flight to a target, depending on its distance.

Theory of operation. In each round trip, a fixed window transports at most its own size. 8,192 messages are plenty for a
target nearby, but limit the rate to 41,000 messages/s at 200 ms. So the window has a fixed part and, in addition, twice
the number of messages that fit on the way: the highest rate at which the target has confirmed lately, times the round
trip (BBR's bandwidth-delay product and gain). Once would be enough if messages and confirmations came evenly. But they
come in bursts, and a sender with a full window has to wait. As long as the window is the limit, each round trip
confirms more than the previous one, and the window nearly doubles, until the target or the sender is the limit. When
less is sent, the rate falls, and the window with it.

The round trip is measured with an empty pipeline. In a full one, messages also wait for the target, and a window that
grew with that time would make them wait longer. A shorter measurement always counts; only another one with an empty
pipeline can make it longer.

Bounds for each rule: `LEAST` and `LEAST_SIZE` for each source, plus the difference to `MOST` and `MOST_SIZE`, which its
sources share. The number of copies that a start reads, to find lost ones among later ones, follows from these bounds
(`CHECKED_COPIES`), because a start cannot know how large the window was.
"""

from __future__ import annotations

from collections import deque
from typing import Self

from nats_transforms.dialect import server_dialect

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
    """The limits of one pipeline, without I/O. The user reports sent and confirmed messages.

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
