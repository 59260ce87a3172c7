"""Where a server would begin: its search for the newest copy of an entry, done from outside.

The server reads the target backwards and takes, for each entry, the first record that it meets; a higher number in
an older copy does not count. Which records are an entry's, and on which subjects it looks, changed with versions.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from nats_bridge.bridge.client.jetstream_api import JetStreamApi, Json
from nats_bridge.bridge.consuming.ack_reply import AckReply
from nats_bridge.bridge.consuming.replay import Replay
from nats_bridge.transforms.dialect import Dialect
from nats_bridge.transforms.source_record import HEADER, first_record, last_record
from nats_bridge.transforms.sourcing import Sourcing, compile_sourcing
from nats_bridge.transforms.subject import REST, matches

__all__ = ["Found", "Wanted", "find", "native_wanted", "own_wanted"]

_FIRST_PIECE = 4096  # sequences
_GROWTH = 4
_LAG_PAUSE = 0.1  # seconds until a replica that has not caught up is asked again
_PATIENCE = 50


@dataclass(frozen=True, slots=True)
class Found:
    """A copy in the target.

    Attributes:
        stored: its sequence in the target.
        sequence: the source's sequence that its record names.
    """

    stored: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which records to look for.

    Attributes:
        sourcing: the compiled entry.
        headers: the names under which records count.
        subjects: on which stored subjects to look.
        two_fields_only: whether only records without filter and destination count.
    """

    sourcing: Sourcing
    headers: tuple[bytes, ...]
    subjects: bytes = REST
    two_fields_only: bool = False

    def read(self, subject: bytes, block: bytes) -> int | None:
        """The source's sequence, if a stored message is such a copy."""
        if b"-Source:" not in block or not (self.subjects == REST or matches(subject, self.subjects)):
            return None
        found = [first_record(block, header) for header in self.headers] if self.headers else [last_record(block)]
        for record in found:
            if record is None or (self.two_fields_only and record.filters is not None):
                continue
            if self.sourcing.is_own(record):
                return record.sequence
        return None


def own_wanted(sourcing: Sourcing) -> Wanted:
    """The copies of an entry that the bridge takes for its own."""
    return Wanted(sourcing, ())


def native_wanted(entry: Json, server: Dialect) -> Wanted:
    """What a server looks for.

    Args:
        entry: an entry of `sources`, as the server will have it.
        server: the server that takes over.

    Raises:
        TransformError: it would refuse a transform of the entry.
    """
    subjects = REST
    if server.source_search_follows_filter and not entry.get("subject_transforms"):
        subjects = (entry.get("filter_subject") or ">").encode()
    return Wanted(compile_sourcing(entry, server), (HEADER,), subjects, not server.source_record_names_filters)


async def find(api: JetStreamApi, stream: str, last: int, wanted: Sequence[Wanted]) -> list[Found | None]:
    """The newest stored copy for each of `wanted`; the target is read only as far back as that needs.

    Args:
        api: the API of the target's connection.
        stream: the target.
        last: its last sequence.
        wanted: what to look for.

    Raises:
        ApiError: the server cannot be asked.
    """
    first = max(int((await api.stream_info(stream))["state"]["first_seq"]), 1)
    found: list[Found | None] = [None] * len(wanted)
    high, size = last, _FIRST_PIECE
    while high >= first and None in found:
        low = max(high - size + 1, first)
        for patience in range(_PATIENCE, -1, -1):
            newest = await _piece(api, stream, low, high, wanted)
            # A consumer may sit on a replica that lags behind; unless the end was deleted, it must show up.
            if newest.end == high or high != last or not patience or await api.stored_message(stream, high) is None:
                break
            await asyncio.sleep(_LAG_PAUSE)
        found = [before or now for before, now in zip(found, newest.found, strict=True)]
        high, size = low - 1, size * _GROWTH
    return found


@dataclass(slots=True)
class _Piece:
    found: list[Found | None]
    end: int = 0


async def _piece(api: JetStreamApi, stream: str, low: int, high: int, wanted: Sequence[Wanted]) -> _Piece:
    piece = _Piece([None] * len(wanted))
    async with contextlib.aclosing(Replay(api, stream, headers_only=True).between(low, high)) as batches:
        async for batch in batches:
            for subject, reply, block, _ in batch:
                if b"-Source:" not in block:
                    continue
                for index, each in enumerate(wanted):
                    sequence = each.read(subject, block)
                    if sequence is not None:
                        piece.found[index] = Found(AckReply.parse(reply).stream_sequence, sequence)
            piece.end = AckReply.parse(batch[-1][1]).stream_sequence
    return piece
