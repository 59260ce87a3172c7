"""Finds where a server would resume: repeats its search for the newest copy of an entry.

The server reads the target backwards and takes the first record of each entry that it finds; a higher number in an
older copy does not count. Versions differ in how they match records to entries, and in the subjects that they search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from nats_bridge.client.jetstream_api import JetStreamApi, Json
from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.ack_reply import AckReply
from nats_bridge.consuming.replay import Replay
from nats_bridge.consuming.stream_range import backwards, first_sequence
from nats_transforms.dialect import Dialect
from nats_transforms.source_record import HEADER, first_record, last_record
from nats_transforms.sourcing import Sourcing, compile_sourcing
from nats_transforms.subject import REST, matches


@dataclass(frozen=True, slots=True)
class NewestCopy:
    """A copy in the target.

    Attributes:
        stored: its sequence in the target.
        sequence: the source's sequence that its record names.
    """

    stored: int
    sequence: int


@dataclass(frozen=True, slots=True)
class SearchedRecords:
    """The records to look for.

    Attributes:
        headers: the names under which records count; empty for all that the bridge counts as its own.
        subjects: the stored subjects to search.
        two_fields_only: whether only records without filter and destination count.
    """

    sourcing: Sourcing
    headers: tuple[bytes, ...]
    subjects: bytes = REST
    two_fields_only: bool = False

    def read(self, subject: bytes, block: bytes) -> int | None:
        """Return the source's sequence, if a stored message is such a copy."""
        if b"-Source:" not in block or not (self.subjects == REST or matches(subject, self.subjects)):
            return None
        found = [first_record(block, header) for header in self.headers] if self.headers else [last_record(block)]
        for record in found:
            if record is None or (self.two_fields_only and record.filters is not None):
                continue
            if self.sourcing.is_own(record):
                return record.sequence
        return None


def native_wanted(entry: Json, server: Dialect) -> SearchedRecords:
    """Return the records that a server looks for.

    Args:
        entry: an entry of `sources`, as the server will have it.
        server: the server that takes over.

    Raises:
        TransformError: it would refuse a transform of the entry.
    """
    subjects = REST
    if server.source_search_follows_filter and not entry.get("subject_transforms"):
        subjects = (entry.get("filter_subject") or ">").encode()
    return SearchedRecords(compile_sourcing(entry, server), (HEADER,), subjects, not server.source_record_names_filters)


async def find(api: JetStreamApi, stream: str, last: int, wanted: Sequence[SearchedRecords]) -> list[NewestCopy | None]:
    """Return the newest stored copy for each of `wanted`. The target is read back only as far as necessary.

    Args:
        api: the API of the target's connection.
        last: its last sequence.
        wanted: what to look for.
    """
    first = await first_sequence(api, stream)
    found: list[NewestCopy | None] = [None] * len(wanted)
    replay = Replay(api, stream, headers_only=True)
    if not wanted:
        return found
    async for piece in backwards(replay, first, last, partial(_Newest, wanted)):
        found = [before or now for before, now in zip(found, piece.taker.found, strict=True)]
        if None not in found:
            break
    return found


class _Newest:
    """The newest copy for each of the wanted entries, among some messages."""

    def __init__(self, wanted: Sequence[SearchedRecords]) -> None:
        self.found: list[NewestCopy | None] = [None] * len(wanted)
        self._wanted = wanted

    def take(self, batch: list[Delivered]) -> None:
        for subject, reply, block, _ in batch:
            if b"-Source:" not in block:
                continue
            for index, each in enumerate(self._wanted):
                sequence = each.read(subject, block)
                if sequence is not None:
                    self.found[index] = NewestCopy(AckReply.parse(reply).stream_sequence, sequence)
