"""Computes where copying resumes, by comparing the contents of target and source.

The target's newest copies name the source's messages they were made of. Normally the highest of these is the place to
resume from. Four things can make it another one, and all show in the comparison:

* messages were in flight when a cluster changed its leader or the target was full, and a later one was stored before
  the interruption: the earlier ones are missing and must still be sent, but the later ones must not be sent again;
* the target removed copies (limits per subject, rollups, deletes): these are not missing;
* the source's server lost the end of its store and used the same sequences again: the times differ. If that is true of
  all compared copies, the place of the loss is before them, and `Resume.all_lost` says so;
* the source is a new stream of the same name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from nats_bridge.kinds.copying.position.tail_reader import StoredCopy

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
        handled: the source's sequence up to which nothing is missing in the target.
        there: later sequences that must not be sent, because they are or were in the target.
        missing: the number of messages before the newest copy that are not in the target.
        foreign: the number of copies of messages that the source has lost.
        assumed: the number of messages that are not in the target and count as deleted there.
        missing_sequences: the sequences of messages before the newest copy that are not in the target.
        target_lost: whether the target has lost copies that it had confirmed.
        source_lost: whether the source has lost messages that were copied, which was not seen before.
        all_lost: whether none of the compared copies is of a message that the source has, or has removed.
    """

    handled: int
    there: frozenset[int] = frozenset()
    missing: int = 0
    foreign: int = 0
    assumed: int = 0
    missing_sequences: frozenset[int] = field(default=frozenset(), compare=False)
    target_lost: bool = False
    source_lost: bool = False
    all_lost: bool = False


def of_this_source(copies: Sequence[StoredCopy], key: bytes, since_ns: int) -> tuple[StoredCopy, ...]:
    """Return the copies without those of earlier streams of the same name, and of other entries of the same stream.

    Records of the oldest form do not show their entry; then the ids do.

    Args:
        copies: any of the target's.
        key: the entry's key with the present source.
        since_ns: when the target stored the newest copy of an earlier one, in nanoseconds since 1970.
    """
    return tuple(copy for copy in copies if is_of_this_source(copy, key, since_ns))


def is_of_this_source(copy: StoredCopy, key: bytes, since_ns: int) -> bool:
    """Return whether a copy is one that `of_this_source` keeps."""
    copy_id = copy.copy_id
    if copy_id is not None and (copy_id.is_of(key) or copy.record.filters is None):
        return copy_id.entry == key
    return copy.time_ns > since_ns


def compare(
    copies: Sequence[StoredCopy],
    source: Mapping[int, SourceMessage],
    *,
    ids: Collection[bytes],
    has_gaps: bool,
    kept_per_subject: int,
    remembered_since_ns: int,
) -> Resume:
    """Compare the newest copies with the source.

    Args:
        copies: at least one, in stored order.
        source: the selected messages of the source between the lowest and the highest sequence of the copies.
        ids: the message ids of all messages stored between the copies.
        has_gaps: whether the target has lost messages between these copies.
        kept_per_subject: the limit of messages for each subject; 0 without a limit.
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
        evicted = 0 < kept_per_subject <= newer[message.destination]
        superseded = evicted or message.destination in rolled_up or _EVERYTHING in rolled_up
        skipped = message.message_id is not None and message.message_id in ids
        if superseded or skipped:
            continue
        if has_gaps and following_ns < remembered_since_ns:
            assumed += 1
        else:
            missing.append(sequence)
    handled = min(missing) - 1 if missing else highest
    missing_sequences = frozenset(missing)
    candidates = (sequence for sequence in {*source, *present} if handled < sequence <= highest)
    there = frozenset(sequence for sequence in candidates if sequence not in missing_sequences)
    return Resume(handled, there, len(missing), len(foreign), assumed, missing_sequences)


def _of_lost_messages(copies: Sequence[StoredCopy], source: Mapping[int, SourceMessage]) -> set[int]:
    """Return the places of the copies whose messages the source has lost: others have or had their sequences.

    A message that is gone tells nothing by itself. But if it was older than one that the source has at a lower
    sequence, it was lost as well.
    """
    others = {at: source.get(copy.record.sequence) for at, copy in enumerate(copies)}
    lost = {at for at, message in others.items() if message is not None and not is_of(copies[at], message)}
    if not lost:
        return lost
    lowest = min(copies[at].record.sequence for at in lost)
    began_ns = source[lowest].time_ns
    for at, message in others.items():
        copy_id = copies[at].copy_id
        if message is None and copy_id is not None and copies[at].record.sequence > lowest:
            lost |= {at} if copy_id.time_ns < began_ns else set()
    return lost


def behind_confirmed(
    confirmed: int, copies: Sequence[StoredCopy], observed: Resume, counted: Collection[int]
) -> Resume:
    """Return the point to resume at after the confirmed sequence, regardless of later removals.

    Args:
        confirmed: the source's sequence up to which the target has confirmed everything.
        copies: the newest copies.
        observed: the result of comparing the copies after `confirmed` with the source.
        counted: sequences that an earlier round has reported as missing.

    Returns:
        The point to resume at. `missing` counts only sequences not reported before.
    """
    there = frozenset(copy.record.sequence for copy in copies if copy.record.sequence > confirmed)
    missing = observed.missing_sequences
    return Resume(confirmed, there, missing=len(missing - set(counted)), missing_sequences=missing)


def is_of(copy: StoredCopy, message: SourceMessage) -> bool:
    """Return whether a copy is one of the message that has its sequence in the source now."""
    if copy.message_id == message.message_id:
        return True  # its publisher's, or no id at all: copies that the server made
    copy_id = copy.copy_id
    return copy_id is not None and copy_id.time_ns == message.time_ns
