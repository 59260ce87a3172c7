"""Reads a range of a stream once: message by message, as one piece, or in pieces backwards from its end.

`Replay.between` yields the batches of one consumer, and that consumer may be on a replica that lags behind the leader.
`read_piece` therefore reads again until the last message arrives, unless it was deleted.

A search for the newest messages of some kind usually ends near the stream's end. `backwards` reads growing pieces from
there, for example of a stream with 100,000 messages:

    piece   1st             2nd             3rd            4th
    reads   95,905-100,000  79,521-95,904   13,985-79,520  1-13,984
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator, Sized
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from nats_bridge.client.jetstream_api import JetStreamApi
from nats_bridge.client.waiting import LEADER_AWAY
from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.ack_reply import AckReply
from nats_bridge.consuming.replay import Replay

FIRST_PIECE = 4096  # sequences
_GROWTH = 4
_LOOKS = 51  # at a replica that lags behind


class _Takes(Protocol):
    def take(self, batch: list[Delivered]) -> None: ...


_Taker = TypeVar("_Taker", bound=_Takes)


@dataclass(frozen=True, slots=True)
class Piece(Generic[_Taker]):
    """A piece of a stream, read.

    Attributes:
        low: its first sequence.
        taker: the receiver of its messages.
        count: the number of its messages.
    """

    low: int
    taker: _Taker
    count: int


async def messages(replay: Replay, first: int, last: int) -> AsyncGenerator[Delivered, None]:
    """Yield the messages with first <= sequence <= last that still exist, in order.

    If the iteration may end early, close it (`contextlib.aclosing`), so that the consumer is deleted.

    Raises:
        ApiError: retriable if the connection broke. The messages yielded before it are valid.
    """
    async with contextlib.aclosing(replay.between(first, last)) as batches:
        async for batch in batches:
            for message in batch:
                yield message


async def read_piece(
    replay: Replay, low: int, high: int, make: Callable[[], _Taker], *, newest: bool = True
) -> Piece[_Taker]:
    """Return the messages in [low, high], read in order.

    Args:
        replay: reads them.
        make: creates the receiver of the messages, again for each time that they are read.
        newest: whether `high` may be the stream's end, which a replica may not have reached yet.
    """
    for look in range(1, _LOOKS + 1):
        taker = make()
        count, end = 0, 0
        async with contextlib.aclosing(replay.between(low, high)) as batches:
            async for batch in batches:
                count += len(batch)
                end = AckReply.parse(batch[-1][1]).stream_sequence
                taker.take(batch)
        if not newest or end == high or look == _LOOKS or await replay.api.stored_message(replay.stream, high) is None:
            break
        await LEADER_AWAY.pause()
    return Piece(low, taker, count)


async def backwards(
    replay: Replay, first: int, last: int, make: Callable[[], _Taker], wanted: Sized = (), enough: int = 0
) -> AsyncGenerator[Piece[_Taker], None]:
    """Yield [first, last] in pieces from its end, each read in order. The caller ends the iteration when it has enough.

    Args:
        replay: reads them.
        last: the stream's last sequence.
        make: creates the receiver of a piece's messages.
        wanted: the messages found so far, if the caller collects them. Then a piece is at most as long as the rest
            should need at the density so far.
        enough: how many of them are enough.
    """
    for low, high in _pieces(first, last, wanted, enough):
        yield await read_piece(replay, low, high, make, newest=high == last)


async def first_sequence(api: JetStreamApi, stream: str) -> int:
    """Return the first sequence of a stream."""
    return max(int((await api.stream_info(stream))["state"]["first_seq"]), 1)


def _pieces(first: int, last: int, wanted: Sized, enough: int) -> Iterator[tuple[int, int]]:
    high, size = last, FIRST_PIECE
    while high >= first:
        low = max(high - size + 1, first)
        yield low, high
        high, size = low - 1, size * _GROWTH
        if count := len(wanted):
            size = min(size, max(FIRST_PIECE, (enough - count) * (last - high) // count))
