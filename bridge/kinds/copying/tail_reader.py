"""The newest copies of an entry, as its target holds them.

The target is read backwards from its end, headers only, in growing pieces, until enough copies of the entry are found
to tell where it stood and whether an interruption left some out.

A repaired interruption leaves copies after later ones: the piece can begin among them, and the later ones are
in front of it, however long ago. So what seems to be left out is looked for once more, further back (`whatever_age`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import structlog

from nats_bridge.bridge.client.jetstream_api import JetStreamApi
from nats_bridge.bridge.consuming.ack_reply import AckReply
from nats_bridge.bridge.consuming.replay import Replay
from nats_bridge.bridge.kinds.copying.message_ids import CopyId
from nats_bridge.transforms import header_block
from nats_bridge.transforms.source_record import SourceRecord, last_record

__all__ = ["StoredCopy", "TargetTail", "own_record", "read_tail"]

_log = structlog.get_logger("bridge.copying.target_tail")

_FIRST_PIECE = 4096  # sequences
_GROWTH = 4
_TOGETHER_NS = 60 * 10**9  # copies that were in flight at the same time are stored within this of each other
_LAG_PAUSE = 0.1  # seconds until the next look at a replica that has not caught up


@dataclass(frozen=True, slots=True)
class StoredCopy:
    """A copy in the target.

    Attributes:
        subject: what it is stored under.
        time_ns: when it was stored, in nanoseconds since 1970.
        record: where it comes from.
        message_id: its `Nats-Msg-Id`; None without one.
        rollup: its `Nats-Rollup`; None without one.
    """

    subject: bytes
    time_ns: int
    record: SourceRecord
    message_id: bytes | None
    rollup: bytes | None = None

    @property
    def copy_id(self) -> CopyId | None:
        """Its id, if that is one of ours."""
        return CopyId.parse(self.message_id)


@dataclass(frozen=True, slots=True)
class TargetTail:
    """What was found.

    Attributes:
        copies: the entry's newest copies, in the order in which they are stored.
        has_gaps: whether sequences between them hold nothing any more.
        ids: the message ids of everything between them, others' messages included.
    """

    copies: tuple[StoredCopy, ...]
    has_gaps: bool
    ids: frozenset[bytes] = frozenset()


async def read_tail(
    api: JetStreamApi,
    stream: str,
    last: int,
    is_own: Callable[[SourceRecord], bool],
    wanted: int,
    *,
    rule: str = "",
    record_of: Callable[[bytes], SourceRecord | None] | None = None,
    whatever_age: bool = False,
) -> TargetTail:
    """Read the newest copies of an entry, no more than are wanted.

    Args:
        api: the API of the target's connection.
        stream: the target.
        last: its last sequence.
        is_own: whether a source record is of the entry.
        wanted: how many copies are enough.
        rule: the rule's name, for the log.
        record_of: reads where a message comes from in its header block, if that is not a source record.
        whatever_age: whether only the number counts, and not how much older than the newest one a copy is.

    Raises:
        ApiError: the server cannot be asked.
    """
    record_of = record_of or partial(own_record, is_own)
    first = max(int((await api.stream_info(stream))["state"]["first_seq"]), 1)
    copies: list[StoredCopy] = []
    ids: set[bytes] = set()
    seen = 0
    high, size, told = last, _FIRST_PIECE, 0
    while high >= first:
        low = max(high - size + 1, first)
        piece, found = await _piece(api, stream, low, high, record_of, ids, newest=high == last)
        copies[:0] = piece
        seen += found
        enough = len(copies) >= wanted
        if not whatever_age and copies:
            enough = enough or not piece or piece[0].time_ns < copies[-1].time_ns - _TOGETHER_NS
        if enough:
            high = low - 1
            break
        high, size = low - 1, size * _GROWTH
        if not copies:
            ids.clear()  # what is behind all copies tells nothing about them, and it can be much
        if not copies and last - high > 16 * _FIRST_PIECE * (told + 1):
            told = (last - high) // (16 * _FIRST_PIECE)
            searched, left = last - high, high - first + 1
            _log.info("copying.searching_position", rule=rule, stream=stream, searched=searched, left=left)
    return TargetTail(tuple(copies[-wanted:]), has_gaps=seen < last - high, ids=frozenset(ids))


async def _piece(
    api: JetStreamApi,
    stream: str,
    low: int,
    high: int,
    record_of: Callable[[bytes], SourceRecord | None],
    ids: set[bytes],
    *,
    newest: bool,
) -> tuple[list[StoredCopy], int]:
    """The copies in [low, high], and how many messages there are; their ids go to `ids`."""
    for patience in range(50, -1, -1):
        copies: list[StoredCopy] = []
        found, end = 0, 0
        async with contextlib.aclosing(Replay(api, stream, headers_only=True).between(low, high)) as batches:
            async for batch in batches:
                found += len(batch)
                end = AckReply.parse(batch[-1][1]).stream_sequence
                for subject, reply, block, _ in batch:
                    message_id = header_block.read(block, b"Nats-Msg-Id")
                    if message_id is not None:
                        ids.add(message_id)
                    record = record_of(block)
                    if record is not None:
                        time_ns = AckReply.parse(reply).time_ns
                        rollup = header_block.read(block, b"Nats-Rollup")
                        copies.append(StoredCopy(subject, time_ns, record, message_id, rollup))
        # A consumer may sit on a replica that lags behind; unless the end was deleted, it must show up.
        if not newest or end == high or not patience or await api.stored_message(stream, high) is None:
            break
        await asyncio.sleep(_LAG_PAUSE)
    return copies, found


def own_record(is_own: Callable[[SourceRecord], bool], block: bytes) -> SourceRecord | None:
    """The source record by which a message was stored, if it is of the entry; None if there is none."""
    record = last_record(block)
    return record if record is not None and is_own(record) else None
