"""Decides from an entry's copies whether its source is the stream that they were made of.

The id that a copy was given names the time of its message in the source. So the source is asked for a few of these
messages (`nats_bridge.client.stream_identity`), if its creation time is another one. Copies with their publishers'
ids name a sequence only. Then id and payload must be the same; a recreated source that holds the same messages under
the same sequences is taken for the one before, and the target holds all of them. Times of source and target are never
compared: their clocks can differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from nats_bridge.client.stream_identity import Bounds, KnownStream, MessageStamp, Verdict
from nats_bridge.kinds.copying.position.tail_reader import StoredCopy
from nats_transforms import header_block
from nats_transforms.copy_id import without_copy_id

if TYPE_CHECKING:
    from nats_bridge.kinds.copying.position.entry_streams import EntryStreams


@dataclass(frozen=True, slots=True)
class SourceIdentity:
    """Which of a target's copies are of the present source.

    Attributes:
        key: the entry's key with the present source, as the copies' ids have it.
        since_ns: when the target stored the newest copy of an earlier source, in nanoseconds since 1970; 0 for none.
        recreated: whether the newest copies are of an earlier source.
    """

    key: bytes
    since_ns: int = 0
    recreated: bool = False


async def identity_by_copies(streams: EntryStreams, copies: Sequence[StoredCopy]) -> SourceIdentity:
    """Compare a few of the newest copies with the messages of the source.

    Args:
        streams: the entry's.
        copies: the newest copies, in stored order.

    Raises:
        ApiError: the server cannot be asked.
    """
    fresh = streams.fresh_key
    ours = [copy for copy in copies if copy.copy_id is not None and copy.copy_id.is_of(fresh)]
    newest = ours[-1] if ours else None
    key = newest.copy_id.entry if newest is not None and newest.copy_id is not None else fresh
    verdict: Verdict = "same"
    if newest is not None and key != fresh:
        verdict = await _by_times(streams, [copy for copy in ours if copy.copy_id and copy.copy_id.entry == key])
    since = _since(ours, key)
    if verdict != "same" or newest is None:
        run = _newest_run(copies)
        if newest is None or newest not in run:
            # They have their publishers' ids.
            later = await _by_content(streams, run)
            if later == "same":
                key, since = fresh, newest.time_ns if newest is not None else 0
            verdict = later if later != "unknown" else verdict
    if verdict == "recreated":
        return SourceIdentity(fresh, copies[-1].time_ns, recreated=True)
    return SourceIdentity(key, since)


def _since(ours: Sequence[StoredCopy], key: bytes) -> int:
    return max((copy.time_ns for copy in ours if copy.copy_id is not None and copy.copy_id.entry != key), default=0)


def _newest_run(copies: Sequence[StoredCopy]) -> Sequence[StoredCopy]:
    """The newest copies among which sequences ascend: those of an earlier source are not among them."""
    start = 0
    for index, (one, following) in enumerate(pairwise(copies), 1):
        if following.record.sequence < one.record.sequence:
            start = index
    return copies[start:]


def _sample(copies: Sequence[StoredCopy], bounds: Bounds) -> list[StoredCopy]:
    """The lowest, one in the middle and the highest of those that the source can hold, by their sequences there."""
    first = bounds.first
    if first is None:
        return []
    held = sorted(
        (copy for copy in copies if first.sequence <= copy.record.sequence <= bounds.last.sequence),
        key=lambda copy: copy.record.sequence,
    )
    return [held[0], held[len(held) // 2], held[-1]] if held else []


async def _by_times(streams: EntryStreams, copies: Sequence[StoredCopy]) -> Verdict:
    highest = max(copies, key=lambda copy: copy.record.sequence)
    sample = [*_sample(copies, Bounds.of(streams.source_info)), highest]
    known = [MessageStamp(copy.copy_id.sequence, copy.copy_id.time_ns) for copy in sample if copy.copy_id is not None]
    return await KnownStream("", tuple(dict.fromkeys(known))).verdict(streams.source.api, streams.source_info)


async def _by_content(streams: EntryStreams, copies: Sequence[StoredCopy]) -> Verdict:
    if not copies:
        return "same"
    bounds = Bounds.of(streams.source_info)
    sample = _sample(copies, bounds)
    for copy in sample:  # a source that lost its end still holds the lowest ones
        message = await streams.source.api.stored_message(streams.source.stream, copy.record.sequence)
        if message is not None:
            message_id = header_block.read(without_copy_id(message.header_block), b"Nats-Msg-Id")
            if message_id != copy.message_id and copy.copy_id is None:
                return "recreated"
            stored = await streams.target_api.stored_message(streams.target.name, copy.sequence)
            if stored is None or streams.target.counts or stored.payload == message.payload:
                return "same"
            return "recreated"
    highest = max(copy.record.sequence for copy in copies)
    return "recreated" if not sample and bounds.last.sequence < highest else "unknown"
