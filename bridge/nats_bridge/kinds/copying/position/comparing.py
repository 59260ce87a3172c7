"""Compares an entry's newest copies with its source, to find messages between them that have no copy.

The problem: messages were in flight together when a round was interrupted, and a target may have stored later ones but
not earlier ones. So the newest copy alone does not show where to resume.

The idea: the newest few copies (`NEWEST`) are compared with the source in every detail. More are checked only if more
of them may have been in flight together. A copy can be lost while a whole window of later ones is stored, and a start
does not know how wide the window was, so it assumes the maximum (`CHECKED_COPIES`). Of these, only the sequences are
read. If the source has a selected sequence between them that none of them has, a copy is missing. If their sequences
have no gap, the source need not be read.

Example: `NEWEST` is 4, `CHECKED_COPIES` is 8, and the entry selects everything.

```text
source     … 91 92 93 94 95 96 97 98 99 100 101
target     … 91 92 94 95 96 97 98 99        (93 was refused by a leader that changed; 94 … 99 were stored)
newest 4   96 97 98 99: complete, and there are more of the same age
newest 8   91 92 94 … 99: a gap at 93, which the source holds
result     resume after 92; 94 … 99 are there and not sent again; 93 is missing, and is stored behind 99
```

Invariants:

* Nothing is written.
* A message only counts as missing if it is in the source now.
* No more than `2 * CHECKED_COPIES` copies are read, and the source between the lowest and the highest of them.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TypeAlias

from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.ack_reply import AckReply, fields_behind
from nats_bridge.consuming.replay import Replay
from nats_bridge.consuming.stream_range import backwards, first_sequence, messages
from nats_bridge.kinds.copying.position import tail_reader as target_tail
from nats_bridge.kinds.copying.position.entry_streams import EntryStreams
from nats_bridge.kinds.copying.position.resume_point import (
    Resume,
    SourceMessage,
    behind_confirmed,
    compare,
    is_of_this_source,
)
from nats_bridge.kinds.copying.position.tail_reader import (
    StoredCopy,
    TargetTail,
)
from nats_bridge.kinds.copying.target import Target
from nats_bridge.kinds.copying.writing.window import CHECKED_COPIES, LEAST
from nats_transforms import copy_id, header_block
from nats_transforms.republish import Republish
from nats_transforms.sourcing import Sourcing

NEWEST = 2 * LEAST
"""Copies that are compared first, in every detail."""

Read: TypeAlias = Callable[[int, bool], Awaitable[TargetTail]]
"""Reads this many of an entry's newest copies: of any age, or only those that may have been in flight together."""


async def compared_entry(streams: EntryStreams, tail: TargetTail, read: Read) -> Resume:
    """Compare the newest copies of an entry with its source; see `compared`, also for errors."""
    return await compared(streams.source, streams.sourcing, streams.target, tail, read, partial(has_gap, streams))


async def compared(
    source: Replay,
    rule: Sourcing | Republish,
    target: Target,
    tail: TargetTail,
    read: Read,
    has_gap_before: Callable[[int], Awaitable[bool]] | None = None,
) -> Resume:
    """Compare the newest copies with the source, which is read for that.

    The newest few are compared. If these are complete and there are more of about the same age, those are searched for
    a gap. If there is one, or something is missing among the newest, as many are compared as a window can have had in
    flight.

    If something still seems to be missing, more copies are read: the tail can begin among copies that made up for an
    interruption. They were in flight together with those before them, so these are not far.

    Args:
        source: reads the source, headers only.
        rule: the entry, or another object that decides the copies' subjects.
        target: the stream that receives.
        tail: its newest copies of this source, at least one, read as `read` does.
        read: reads more of them.
        has_gap_before: returns whether a message before a sequence has no copy; None if no window is wider than
            `LEAST`.

    Raises:
        ApiError: the server refuses, or does not answer.
    """
    messages = await _messages_copied(source, rule, tail.copies)
    observed = _compared_with(messages, target, tail)
    wide = has_gap_before is not None and tail.is_cut
    lowest = min(copy.record.sequence for copy in tail.copies)
    if wide and has_gap_before is not None and (observed.missing or await has_gap_before(lowest)):
        tail = await read(CHECKED_COPIES, False)
        messages = await _messages_copied(source, rule, tail.copies)
        observed = _compared_with(messages, target, tail)
    if not observed.missing:
        return observed
    further = await read(2 * (CHECKED_COPIES if wide else NEWEST), True)
    return _compared_with(messages, target, replace(tail, copies=further.copies))


async def compared_again(streams: EntryStreams, tail: TargetTail) -> Resume:
    """Compare these copies of an entry, at least one, with its source.

    Raises:
        ApiError: a server refuses, or does not answer.
    """
    return _compared_with(await _messages_copied(streams.source, streams.sourcing, tail.copies), streams.target, tail)


async def compared_behind(confirmed: int, streams: EntryStreams, tail: TargetTail, reported: frozenset[int]) -> Resume:
    """Compare the copies after the confirmed ones. Messages between them may be missing after an interruption.

    Args:
        confirmed: the source's sequence up to which the target has confirmed everything.
        streams: the entry's.
        tail: its newest copies.
        reported: sequences that were reported as missing before.

    Raises:
        ApiError: a server refuses, or does not answer.
    """
    newer = tuple(copy for copy in tail.copies if copy.record.sequence > confirmed)
    highest = max((copy.record.sequence for copy in newer), default=confirmed)
    if highest - confirmed == len(newer):
        return behind_confirmed(confirmed, newer, Resume(highest), reported)
    messages = await _source_between(streams.source, streams.sourcing, confirmed + 1, highest)
    # Every missing message is sent again, so none counts as deleted.
    observed = _compared_with(messages, streams.target, replace(tail, copies=newer, has_gaps=False))
    return behind_confirmed(confirmed, newer, observed, reported)


def _compared_with(messages: dict[int, SourceMessage], target: Target, tail: TargetTail) -> Resume:
    return compare(
        tail.copies,
        messages,
        ids=tail.ids,
        has_gaps=tail.has_gaps,
        kept_per_subject=target.kept_per_subject,
        remembered_since_ns=target.now_ns - target.window_ns // 2,
    )


async def _messages_copied(
    source: Replay, rule: Sourcing | Republish, copies: Sequence[StoredCopy]
) -> dict[int, SourceMessage]:
    sequences = [copy.record.sequence for copy in copies]
    return await _source_between(source, rule, min(sequences), max(sequences))


async def _source_between(
    source: Replay, rule: Sourcing | Republish, first: int, last: int
) -> dict[int, SourceMessage]:
    """Return the rule's selection of the source between two sequences, both included."""
    selected: dict[int, SourceMessage] = {}
    where = rule.where if isinstance(rule, Sourcing) else None
    async for subject, reply, block, _ in messages(source, first, last):
        destination = rule.destination(subject)
        if destination is not None and (where is None or where.holds(block)):
            ack = AckReply.parse(reply)
            message_id = header_block.read(block, b"Nats-Msg-Id")
            selected[ack.stream_sequence] = SourceMessage(ack.time_ns, destination, message_id)
    return selected


async def has_gap(streams: EntryStreams, before: int) -> bool:
    """Return whether the source has a selected message that has no copy among the newest `CHECKED_COPIES`.

    Args:
        streams: the entry's.
        before: only messages before this sequence of the source count.

    Raises:
        ApiError: a server refuses, or does not answer.
    """
    sequences = [each for each in await _sequences(streams) if each <= before]
    held = set(sequences)
    if len(held) < len(sequences):
        return True  # a source that lost its end has given sequences twice
    holes = gaps(sequences)
    if not holes:
        return False
    async with contextlib.aclosing(messages(streams.source, holes[0][0] + 1, holes[-1][1] - 1)) as between:
        async for subject, reply, block, _ in between:
            if AckReply.parse(reply).stream_sequence not in held and streams.sourcing.selects(subject, block):
                return True
    return False


async def _sequences(streams: EntryStreams) -> list[int]:
    """Return the sequences in the source of the newest copies, without much older ones."""
    first = await first_sequence(streams.target_api, streams.target.name)
    found: list[int] = []
    newest_ns = 0
    replay = Replay(streams.target_api, streams.target.name, headers_only=True)
    make = partial(_SequencesOfCopies, streams)
    async for piece in backwards(replay, first, streams.last, make, found, CHECKED_COPIES):
        copies = piece.taker
        newest_ns = newest_ns or max(copies.times_ns, default=0)
        since_ns = newest_ns - target_tail.TOGETHER_NS
        stored = zip(copies.sequences, copies.times_ns, strict=True)
        young = [sequence for sequence, time_ns in stored if time_ns >= since_ns]
        found[:0] = young
        if len(found) >= CHECKED_COPIES or (newest_ns and (not young or len(young) < len(copies.sequences))):
            break
    return found[-CHECKED_COPIES:]


class _SequencesOfCopies:
    """The sequences in the source of the copies among some messages, and when they were stored."""

    def __init__(self, streams: EntryStreams) -> None:
        self.sequences: list[int] = []
        self.times_ns: list[int] = []
        self._streams = streams
        # Almost all copies end like this: the bridge's id, the record of the same message, and the headers added by
        # reading.
        self._plain = re.compile(
            rb"\n%b\r\nNats-(?:Stream|Bridge)-Source: [^ \r]+ (?P=sequence)[ \r][^\n]*\n"
            rb"(?:Nats-Msg-Size: [0-9]+\r\n)?\r\n\Z" % copy_id.line_pattern(streams.key)
        )

    def take(self, batch: list[Delivered]) -> None:
        behind = fields_behind(batch[0][1])
        for subject, reply, block, _ in batch:
            time_ns = int(reply.rsplit(b".", behind)[3])
            plain = self._plain.search(block)
            sequence = int(plain["sequence"]) if plain is not None else self._sequence_of(subject, block, time_ns)
            if sequence:
                self.sequences.append(sequence)
                self.times_ns.append(time_ns)

    def _sequence_of(self, subject: bytes, block: bytes, time_ns: int) -> int:
        """Return the source's sequence of a message in another form; 0 if it is not a copy of the entry."""
        streams = self._streams
        record = streams.sourcing.own_record(block)
        if record is None:
            return 0
        copy = StoredCopy(subject, time_ns, record, header_block.read(block, b"Nats-Msg-Id"))
        return record.sequence if is_of_this_source(copy, streams.key, streams.since_ns) else 0


def gaps(sequences: Sequence[int]) -> list[tuple[int, int]]:
    """Neighbours between which sequences are missing, in order."""
    ordered = sorted(sequences)
    return [(one, next_one) for one, next_one in pairwise(ordered) if next_one - one > 1]
