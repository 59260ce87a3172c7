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
newest 16  still no copy of 93: it could have been stored later, before the newest 8
result     resume after 92; 94 … 99 are stored and not sent again; 93 is missing, and is stored behind 99
```

Four things can make another message than the newest copied one the place to resume at:

* earlier messages are missing, as in the example. They must still be sent, but the later ones must not be sent again;
* the target removed copies (limits per subject, rollups, deletes): these are not missing;
* the source's server lost the end of its store and used the same sequences again: the times differ. If that is true of
  all compared copies, the place of the loss is before them, and `Resume.all_lost` says so;
* the source is a new stream of the same name (`entry_streams`).

Invariants:

* Nothing is written.
* A message only counts as missing if it is in the source now.
* `compared_entry` compares no more than `2 * CHECKED_COPIES` copies, with the source between the lowest and the highest
  of them.

Limits:

* A missing message is only found between compared copies. `entry_streams` ends its search at copies that cannot have
  been in flight together with the newest one: stored a minute before it, or `MOST` sequences away.
* A target that has removed messages does not show whether a message was never stored, or was stored and deleted. If it
  may have forgotten the message's id as well, the message counts as deleted (`Resume.assumed`). If that is wrong, the
  message is lost. If it were sent again, a deleted message would come back.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import TypeAlias

from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.ack_reply import AckReply, fields_after_count
from nats_bridge.consuming.replay import Replay
from nats_bridge.consuming.stream_range import backwards, first_sequence, messages
from nats_bridge.kinds.copying.position import entry_streams
from nats_bridge.kinds.copying.position.entry_streams import EntryStreams, StoredCopy, TargetTail, is_of_this_source
from nats_bridge.kinds.copying.target import Target
from nats_bridge.kinds.copying.writing.in_flight import CHECKED_COPIES, LEAST, MOST
from nats_transforms import copy_id, header_block

_EVERYTHING = b">"


@dataclass(frozen=True, slots=True)
class SourceMessage:
    """A message that the entry selects.

    Attributes:
        time_ns: its time stamp, in nanoseconds since 1970.
        destination: the subject of its copy.
        message_id: the publisher's `Nats-Msg-Id`; None without one.
    """

    time_ns: int
    destination: bytes
    message_id: bytes | None


@dataclass(frozen=True, slots=True)
class Resume:
    """The point to resume at.

    Attributes:
        resume_after: the source's sequence up to which nothing is missing in the target.
        already_stored: later sequences that must not be sent. They are or were in the target, or count as deleted.
        missing: the number of messages to send before the newest copy. For a recreated target, the number of copies
            that it holds.
        foreign: the number of copies of messages that the source has lost.
        assumed: the number of messages that are not in the target and count as deleted there.
        missing_sequences: the sequences of messages before the newest copy that are not in the target.
        target_lost: whether the target has lost copies that it had confirmed.
        source_lost: whether the source has lost messages that were copied, which was not seen before.
        all_lost: whether all compared copies are of messages that the source has lost.
        recognised: the highest copied sequence whose message is still in the source, by its publisher's id; 0 for none.
    """

    resume_after: int
    already_stored: frozenset[int] = frozenset()
    missing: int = 0
    foreign: int = 0
    assumed: int = 0
    missing_sequences: frozenset[int] = field(default=frozenset(), compare=False)
    target_lost: bool = False
    source_lost: bool = False
    all_lost: bool = False
    recognised: int = field(default=0, compare=False)


def compare(
    copies: Sequence[StoredCopy],
    source: Mapping[int, SourceMessage],
    *,
    ids: Collection[bytes],
    has_gaps: bool,
    max_msgs_per_subject: int,
    remembered_since_ns: int,
) -> Resume:
    """Compare the newest copies with the source.

    Args:
        copies: at least one, in stored order.
        source: the selected messages of the source between the lowest and the highest sequence of the copies.
        ids: the message ids of all messages stored between the copies.
        has_gaps: whether the target has lost messages between these copies.
        max_msgs_per_subject: the limit of messages for each subject; 0 without a limit.
        remembered_since_ns: since when the target remembers message ids, in nanoseconds since 1970.
    """
    foreign = _of_lost_messages(copies, source)
    present = {copy.record.sequence: copy for at, copy in enumerate(copies) if at not in foreign}
    if not present:
        return Resume(min(source, default=1) - 1, foreign=len(foreign), all_lost=True)
    highest = max(present)
    following_ns = present[highest].time_ns
    newer: Counter[bytes] = Counter()
    rolled_up: set[bytes] = set()
    missing: list[int] = []
    assumed = 0
    for sequence in sorted({*present, *(s for s in source if s < highest)}, reverse=True):
        if sequence in present:
            copy = present[sequence]
            following_ns = copy.time_ns
            newer[copy.subject] += 1
            if copy.rollup is not None:
                rolled_up.add(_EVERYTHING if copy.rollup == b"all" else copy.subject)
            continue
        message = source[sequence]
        evicted = 0 < max_msgs_per_subject <= newer[message.destination]
        superseded = evicted or message.destination in rolled_up or _EVERYTHING in rolled_up
        skipped = message.message_id is not None and message.message_id in ids
        if superseded or skipped:
            continue
        if has_gaps and following_ns < remembered_since_ns:
            assumed += 1
        else:
            missing.append(sequence)
    resume_after = min(missing) - 1 if missing else highest
    missing_sequences = frozenset(missing)
    candidates = (sequence for sequence in {*source, *present} if resume_after < sequence <= highest)
    already_stored = frozenset(sequence for sequence in candidates if sequence not in missing_sequences)
    by_id = (
        at for at, copy in present.items() if at in source and copy.message_id == source[at].message_id is not None
    )
    return Resume(
        resume_after,
        already_stored,
        len(missing),
        len(foreign),
        assumed,
        missing_sequences,
        recognised=max(by_id, default=0),
    )


def _of_lost_messages(copies: Sequence[StoredCopy], source: Mapping[int, SourceMessage]) -> set[int]:
    """Return the places of the copies whose messages the source has lost, and has given their sequences to others.

    A message that is gone tells nothing by itself. But if it was older than one that the source has at a lower
    sequence, it was lost as well. Without a time in its id, it counts as lost then.
    """
    others = {at: source.get(copy.record.sequence) for at, copy in enumerate(copies)}
    lost = {at for at, message in others.items() if message is not None and not is_of(copies[at], message)}
    if not lost:
        return lost
    lowest = min(copies[at].record.sequence for at in lost)
    began_ns = source[lowest].time_ns
    for at, message in others.items():
        copy_id = copies[at].copy_id
        if message is None and copies[at].record.sequence > lowest:
            lost |= {at} if copy_id is None or copy_id.time_ns < began_ns else set()
    return lost


def after_confirmed(confirmed: int, copies: Sequence[StoredCopy], observed: Resume, counted: Collection[int]) -> Resume:
    """Return the point to resume at after the confirmed sequence, regardless of later removals.

    Args:
        confirmed: the source's sequence up to which the target has confirmed everything.
        copies: the newest copies.
        observed: the result of comparing the copies after `confirmed` with the source.
        counted: sequences that an earlier round has reported as missing.

    Returns:
        The point to resume at. `missing` counts only sequences not reported before.
    """
    already_stored = frozenset(copy.record.sequence for copy in copies if copy.record.sequence > confirmed)
    missing = observed.missing_sequences
    return Resume(confirmed, already_stored, missing=len(missing - set(counted)), missing_sequences=missing)


def is_of(copy: StoredCopy, message: SourceMessage) -> bool:
    """Return whether a copy is one of the message that has its sequence in the source now."""
    if copy.message_id == message.message_id:
        return True  # its publisher's, or no id at all: copies that the server made
    copy_id = copy.copy_id
    return copy_id is not None and copy_id.time_ns == message.time_ns


NEWEST = 2 * LEAST
"""Copies that are compared first, in every detail."""

Read: TypeAlias = Callable[[int, bool], Awaitable[TargetTail]]
"""Reads this many of an entry's newest copies: of any age, or only those that may have been in flight together."""


async def compared_entry(streams: EntryStreams, tail: TargetTail, read: Read) -> Resume:
    """Compare the newest copies of an entry with its source, which is read for that.

    The newest few are compared. If the tail is cut, there are more of about the same age, and those are searched for a
    gap. If there is one, or something is missing among the newest, `CHECKED_COPIES` are compared: twice as many as a
    window can have had in flight.

    If something still seems to be missing, more copies are read: the tail can begin among copies that made up for an
    interruption. They were in flight together with those before them, so these are not far.

    Args:
        streams: the entry's.
        tail: its newest copies of this source, at least one, read as `read` does.
        read: reads more of them.
    """
    messages = await _messages_copied(streams, tail.copies)
    observed = _compared_with(messages, streams.target, tail)
    lowest = min(copy.record.sequence for copy in tail.copies)
    wide = tail.is_cut
    if wide and (observed.missing or await has_gap(streams, lowest)):
        tail = await read(CHECKED_COPIES, False)
        messages = await _messages_copied(streams, tail.copies)
        observed = _compared_with(messages, streams.target, tail)
    if not observed.missing:
        return observed
    further = await read(2 * (CHECKED_COPIES if wide else NEWEST), True)
    return _compared_with(messages, streams.target, replace(tail, copies=further.copies))


async def compared_copies(streams: EntryStreams, tail: TargetTail) -> Resume:
    """Compare these copies of an entry, at least one, with its source."""
    return _compared_with(await _messages_copied(streams, tail.copies), streams.target, tail)


async def compared_after_confirmed(
    confirmed: int, streams: EntryStreams, tail: TargetTail, reported: frozenset[int]
) -> Resume:
    """Compare the copies after the confirmed ones. Messages between them may be missing after an interruption.

    Args:
        confirmed: the source's sequence up to which the target has confirmed everything.
        streams: the entry's.
        tail: its newest copies.
        reported: sequences that were reported as missing before.
    """
    newer = tuple(copy for copy in tail.copies if copy.record.sequence > confirmed)
    highest = max((copy.record.sequence for copy in newer), default=confirmed)
    if highest - confirmed == len(newer):
        return after_confirmed(confirmed, newer, Resume(highest), reported)
    messages = await _source_between(streams, confirmed + 1, highest)
    # Every missing message is sent again, so none counts as deleted.
    observed = _compared_with(messages, streams.target, replace(tail, copies=newer, has_gaps=False))
    return after_confirmed(confirmed, newer, observed, reported)


def _compared_with(messages: dict[int, SourceMessage], target: Target, tail: TargetTail) -> Resume:
    return compare(
        tail.copies,
        messages,
        ids=tail.ids,
        has_gaps=tail.has_gaps,
        max_msgs_per_subject=target.max_msgs_per_subject,
        remembered_since_ns=target.now_ns - target.window_ns // 2,
    )


async def _messages_copied(streams: EntryStreams, copies: Sequence[StoredCopy]) -> dict[int, SourceMessage]:
    sequences = [copy.record.sequence for copy in copies]
    return await _source_between(streams, min(sequences), max(sequences))


async def superseded(streams: EntryStreams, copies: Sequence[StoredCopy], after: int) -> frozenset[int]:
    """Return the sequences of messages that the target would have removed because of these later copies.

    Stored now, they would replace the copies.

    Args:
        streams: the entry's.
        copies: all copies in the target.
        after: only messages after this sequence of the source count.
    """
    limit, counted = streams.target.max_msgs_per_subject, Counter[bytes]()
    before: dict[bytes, int] = {}  # the sequence of the copy that removes all earlier messages of its subject
    for copy in sorted(copies, key=lambda copy: copy.record.sequence, reverse=True):
        counted[copy.subject] += 1
        if copy.rollup is not None or counted[copy.subject] == limit:
            before.setdefault(_EVERYTHING if copy.rollup == b"all" else copy.subject, copy.record.sequence)
    if not before:
        return frozenset()
    everything = before.pop(_EVERYTHING, 0)
    selected = _selected(streams, after + 1, max(everything, *before.values(), 0))
    return frozenset(
        [sequence async for sequence, _, to, _ in selected if sequence < max(everything, before.get(to, 0))]
    )


async def selected_between(streams: EntryStreams, after: int, before: int, most: int) -> int:
    """Return how many selected messages the source has between two sequences, both excluded; no more than `most`."""
    found = 0
    async with contextlib.aclosing(_selected(streams, after + 1, before - 1)) as selected:
        async for _ in selected:
            found += 1
            if found == most:
                break
    return found


async def _source_between(streams: EntryStreams, first: int, last: int) -> dict[int, SourceMessage]:
    """Return the entry's selection of the source between two sequences, both included."""
    return {
        sequence: SourceMessage(time_ns, destination, header_block.read(block, b"Nats-Msg-Id"))
        async for sequence, time_ns, destination, block in _selected(streams, first, last)
    }


async def _selected(
    streams: EntryStreams, first: int, last: int
) -> AsyncGenerator[tuple[int, int, bytes, bytes], None]:
    """Yield sequence, time, destination and headers of the selected messages between two sequences, both included."""
    sourcing = streams.sourcing
    async with contextlib.aclosing(messages(streams.source, first, last)) as between:
        async for subject, reply, block, _ in between:
            destination = sourcing.destination(subject)
            if destination is not None and (sourcing.where is None or sourcing.where.holds(block)):
                ack = AckReply.parse(reply)
                yield ack.stream_sequence, ack.time_ns, destination, block


async def has_gap(streams: EntryStreams, before: int) -> bool:
    """Return whether the source has a selected message that has no copy among the newest `CHECKED_COPIES`.

    Two copies of one sequence count as a gap, too.

    Args:
        streams: the entry's.
        before: only messages before this sequence of the source count.
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
    newest_ns, lowest = 0, streams.last + 1  # the sequence where the piece with the lowest copy begins
    replay = Replay(streams.target_api, streams.target.name, headers_only=True)
    make = partial(_SequencesOfCopies, streams)
    async for piece in backwards(replay, first, streams.last, make, found, CHECKED_COPIES):
        copies = piece.taker
        if copies.sequences:
            lowest = piece.low
        newest_ns = newest_ns or max(copies.times_ns, default=0)
        since_ns = newest_ns - entry_streams.TOGETHER_NS
        stored = zip(copies.sequences, copies.times_ns, strict=True)
        young = [sequence for sequence, time_ns in stored if time_ns >= since_ns]
        found[:0] = young
        if len(found) >= CHECKED_COPIES or len(young) < len(copies.sequences):
            break
        if newest_ns and lowest - piece.low >= MOST:
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
        behind = fields_after_count(batch[0][1])
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
