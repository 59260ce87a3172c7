"""Reads the newest copies of an entry from its target.

The target is read backwards from its end, headers only, in growing pieces, until enough copies of the entry are found
to know its position and whether some are missing after an interruption.

After a repaired interruption, copies of earlier messages follow copies of later ones. The piece can begin among them,
and the later ones may be far in front of it. So a search for missing copies is repeated further back (`whatever_age`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import structlog

from nats_bridge.client.jetstream_api import JetStreamApi
from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.ack_reply import AckReply
from nats_bridge.consuming.replay import Replay
from nats_bridge.consuming.stream_range import backwards, first_sequence
from nats_transforms import header_block
from nats_transforms.copy_id import CopyId
from nats_transforms.source_record import SourceRecord

_log = structlog.get_logger("bridge.copying.target_tail")

_REPORTED = 65536  # sequences without a copy, after each of which the log says so
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
    async for piece in backwards(replay, first, last, partial(_Copies, record_of), copies, wanted):
        low, read = piece.low, piece.taker
        copies[:0] = read.copies
        ids |= read.ids
        seen += piece.found
        young = read.copies and read.copies[0].time_ns >= copies[-1].time_ns - TOGETHER_NS
        is_old = not whatever_age and copies and not young
        is_cut = len(copies) >= wanted and not is_old
        if is_cut or is_old:
            break
        if not copies:
            ids.clear()  # ids stored after all copies are irrelevant, and can be many
        searched = last - low + 1
        if not copies and searched > _REPORTED * (reported + 1):
            reported = searched // _REPORTED
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
