"""Reads the newest copies of an entry from its target.

The target is read backwards from its end, headers only, in growing pieces, until enough copies of the entry are found
to know its position and whether some are missing after an interruption.

After a repaired interruption, copies of earlier messages follow copies of later ones. The piece can begin among them,
and the later ones may be far in front of it. So a search for missing copies is repeated further back (`whatever_age`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

import structlog

from nats_bridge.client.jetstream_api import JetStreamApi
from nats_bridge.client.waiting import LEADER_AWAY
from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.ack_reply import AckReply
from nats_bridge.consuming.replay import Replay
from nats_transforms import header_block
from nats_transforms.copy_id import CopyId
from nats_transforms.source_record import SourceRecord

_log = structlog.get_logger("bridge.copying.target_tail")

FIRST_PIECE = 4096  # sequences
_GROWTH = 4
TOGETHER_NS = 60 * 10**9  # copies that were in flight at the same time are stored within this of each other


@dataclass(frozen=True, slots=True)
class StoredCopy:
    """A copy in the target.

    Attributes:
        subject: the subject in the target.
        time_ns: when it was stored, in nanoseconds since 1970.
        record: the source record.
        message_id: the `Nats-Msg-Id`; None without one.
        rollup: the `Nats-Rollup`; None without one.
        sequence: its sequence in the target.
    """

    subject: bytes
    time_ns: int
    record: SourceRecord
    message_id: bytes | None
    rollup: bytes | None = None
    sequence: int = 0

    @property
    def copy_id(self) -> CopyId | None:
        """The parsed id, if it is one of the bridge's."""
        return CopyId.parse(self.message_id)


@dataclass(frozen=True, slots=True)
class TargetTail:
    """The newest copies found.

    Attributes:
        copies: the entry's newest copies, in stored order.
        has_gaps: whether sequences between them no longer hold messages.
        is_cut: whether there are more of them further back, which are not much older.
        ids: the message ids of everything between them, others' messages included.
    """

    copies: tuple[StoredCopy, ...]
    has_gaps: bool
    is_cut: bool = False
    ids: frozenset[bytes] = frozenset()


async def read_tail(
    api: JetStreamApi,
    stream: str,
    last: int,
    record_of: Callable[[bytes], SourceRecord | None],
    wanted: int,
    *,
    rule: str = "",
    whatever_age: bool = False,
) -> TargetTail:
    """Read the newest copies of an entry, no more than are wanted.

    Args:
        api: the API of the target's connection.
        stream: the target.
        last: its last sequence.
        record_of: returns the source record in a header block of the entry's copies; None for other messages.
        wanted: the number of copies that is enough.
        rule: the rule's name, for the log.
        whatever_age: whether only the number counts, and not how much older than the newest one a copy is.

    Raises:
        ApiError: the server refuses, or does not answer.
    """
    first = await first_sequence(api, stream)
    copies: list[StoredCopy] = []
    ids: set[bytes] = set()
    seen = 0
    is_cut = False
    replay = Replay(api, stream, headers_only=True)
    reported, low = 0, last + 1
    for low, high in pieces_back(first, last, copies, wanted):
        piece, found = await read_piece(replay, low, high, partial(_Copies, record_of), newest=high == last)
        copies[:0] = piece.copies
        ids |= piece.ids
        seen += found
        young = piece.copies and piece.copies[0].time_ns >= copies[-1].time_ns - TOGETHER_NS
        is_old = not whatever_age and copies and not young
        is_cut = len(copies) >= wanted and not is_old
        if is_cut or is_old:
            break
        if not copies:
            ids.clear()  # ids stored after all copies are irrelevant, and can be many
        searched = last - low + 1
        if not copies and searched > 16 * FIRST_PIECE * (reported + 1):
            reported = searched // (16 * FIRST_PIECE)
            _log.info("copying.searching_position", rule=rule, stream=stream, searched=searched, left=low - first)
    return TargetTail(tuple(copies[-wanted:]), has_gaps=seen < last - low + 1, is_cut=is_cut, ids=frozenset(ids))


class _Copies:
    """The copies among some messages, and the ids of all of them."""

    def __init__(self, record_of: Callable[[bytes], SourceRecord | None]) -> None:
        self.copies: list[StoredCopy] = []
        self.ids: set[bytes] = set()
        self._record_of = record_of

    def take(self, batch: list[Delivered]) -> None:
        for subject, reply, block, _ in batch:
            message_id = header_block.read(block, b"Nats-Msg-Id")
            if message_id is not None:
                self.ids.add(message_id)
            record = self._record_of(block)
            if record is not None:
                ack = AckReply.parse(reply)
                rollup = header_block.read(block, b"Nats-Rollup")
                self.copies.append(StoredCopy(subject, ack.time_ns, record, message_id, rollup, ack.stream_sequence))


class _Takes(Protocol):
    def take(self, batch: list[Delivered]) -> None: ...


_Taker = TypeVar("_Taker", bound=_Takes)


async def first_sequence(api: JetStreamApi, stream: str) -> int:
    """Return the first sequence of a stream.

    Raises:
        ApiError: the server refuses, or does not answer.
    """
    return max(int((await api.stream_info(stream))["state"]["first_seq"]), 1)


def pieces_back(first: int, last: int, found: Sized = (), wanted: int = 0) -> Iterator[tuple[int, int]]:
    """Cut [first, last] into pieces from its end, each `_GROWTH` times longer than the previous one.

    Once copies are found, a piece is at most as long as the rest should need at the density so far.

    Args:
        first: a sequence.
        last: the stream's last sequence.
        found: the copies found so far; the caller appends to it.
        wanted: the number of copies that is enough.
    """
    high, size = last, FIRST_PIECE
    while high >= first:
        low = max(high - size + 1, first)
        yield low, high
        high, size = low - 1, size * _GROWTH
        if count := len(found):
            size = min(size, max(FIRST_PIECE, (wanted - count) * (last - high) // count))


async def read_piece(
    replay: Replay, low: int, high: int, make: Callable[[], _Taker], *, newest: bool
) -> tuple[_Taker, int]:
    """Read the messages in [low, high], in order.

    Args:
        replay: reads them.
        low: the first sequence.
        high: the last one.
        make: creates the receiver of the messages, again for each time that they are read.
        newest: whether `high` is the stream's end, which a replica may not have reached yet.

    Returns:
        The receiver, and the number of messages it got.

    Raises:
        ApiError: the server refuses, or does not answer.
    """
    for patience in range(50, -1, -1):
        taker = make()
        found, end = 0, 0
        async with contextlib.aclosing(replay.between(low, high)) as batches:
            async for batch in batches:
                found += len(batch)
                end = AckReply.parse(batch[-1][1]).stream_sequence
                taker.take(batch)
        # The consumer may be on a replica that lags behind. Unless the last message was deleted, it must arrive.
        if not newest or end == high or not patience or await replay.api.stored_message(replay.stream, high) is None:
            break
        await LEADER_AWAY.pause()
    return taker, found
