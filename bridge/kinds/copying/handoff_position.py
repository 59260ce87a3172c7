"""Finds how far the bridge got with one entry, and whether the target's records still prove it.

Where the target lost messages after the newest copy that is left (a delete, a bucket's key that was put again, a
limit), one of them may have been a newer copy. What the bridge would do then is no help: it knows no more.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from nats_bridge.bridge.client.connection import Connection
from nats_bridge.bridge.client.jetstream_api import Json
from nats_bridge.bridge.consuming.ack_reply import AckReply
from nats_bridge.bridge.consuming.replay import Replay
from nats_bridge.bridge.jobs.handoff.native_search import Found
from nats_bridge.bridge.kinds.copying.left_out import Behind
from nats_bridge.bridge.kinds.copying.message_ids import entry_key
from nats_bridge.bridge.kinds.copying.resume_point import identity_changed, of_this_source
from nats_bridge.bridge.kinds.copying.resuming import NEWEST, compared
from nats_bridge.bridge.kinds.copying.tail_reader import TargetTail, read_tail
from nats_bridge.bridge.kinds.copying.target import Target
from nats_bridge.bridge.settings import Source
from nats_bridge.transforms.sourcing import Sourcing
from nats_bridge.transforms.timestamp import nanoseconds_of

_MOST_LISTED = 5


@dataclass(frozen=True, slots=True)
class EntryAtTarget:
    """An entry with everything that finding its position needs.

    Attributes:
        source: the entry as configured.
        sourcing: the same, compiled.
        source_connection: the connection that holds the source.
        source_info: the source's `STREAM.INFO`.
        target: the connection that holds the target.
        target_info: the target's `STREAM.INFO`.
        last: the target's last sequence.
    """

    source: Source
    sourcing: Sourcing
    source_connection: Connection
    source_info: Json
    target: Connection
    target_info: Json
    last: int

    @property
    def source_last(self) -> int:
        """The source's last sequence."""
        return int(self.source_info["state"]["last_seq"])

    @property
    def filters(self) -> tuple[str, ...]:
        """The filters of a consumer of the source; the rest is left out on arrival."""
        return tuple(each.decode() for each in self.sourcing.filters) if len(self.sourcing.filters) == 1 else ()


@dataclass(frozen=True, slots=True)
class Waiting:
    """The obstacle to a handoff at this moment.

    Attributes:
        why: the reason, without the entry's name.
        remedy: what to do about it.
    """

    why: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Doubt:
    """Messages of the source that may have been copied, or not: their copies would be gone.

    Attributes:
        gone: how many messages the target lost after the newest copy that is left.
        sequences: the source's messages concerned, in order, at most so many as were lost.
        destinations: the subjects of their copies, each once.
        put_again: whether the target holds a message of its own on each of these subjects.
    """

    gone: int
    sequences: tuple[int, ...]
    destinations: tuple[bytes, ...]
    put_again: bool

    @property
    def listed(self) -> str:
        """The subjects, not too many."""
        shown = ", ".join(f"'{each.decode('utf-8', 'replace')}'" for each in self.destinations[:_MOST_LISTED])
        more = len(self.destinations) - _MOST_LISTED
        return f"{shown} and {more} more" if more > 0 else shown


async def copied_up_to(entry: EntryAtTarget) -> int | Waiting | None:
    """The source's sequence up to which everything is in the target; what must be done first; None without any copy.

    Raises:
        ApiError: a server cannot be asked.
    """
    source = entry.source
    created = str(entry.source_info["created"])
    key, created_ns = entry_key(entry.sourcing, created), nanoseconds_of(created)
    stream = str(entry.target_info["config"]["name"])
    source_connection, target_api, sourcing = entry.source_connection.api, entry.target.api, entry.sourcing
    tail = await read_tail(target_api, stream, entry.last, sourcing.is_own, NEWEST)
    if identity_changed(tail.copies, key, created_ns):
        return Waiting(
            f"stream '{source.name}' is a new one (created {created}), and '{stream}' holds copies of the old one only",
            "set on_recreated: restart, start the sidecar until it has copied a message of the new one, and hand over"
            " then",
        )
    copies = of_this_source(tail.copies, key, created_ns)
    if not copies:
        return None
    target = Target.of(entry.target_info, entry.target.server_version)

    async def read(wanted: int, whatever_age: bool) -> TargetTail:
        more = await read_tail(target_api, stream, entry.last, sourcing.is_own, wanted, whatever_age=whatever_age)
        return replace(more, copies=of_this_source(more.copies, key, created_ns))

    behind = Behind(
        source_connection, source.name, entry.filters, sourcing, target_api, stream, entry.last, key, created_ns
    )
    checked = replace(tail, copies=copies)
    resume = await compared(source_connection, source.name, entry.filters, sourcing, target, checked, read, behind)
    if resume.missing:
        return Waiting(
            f"{resume.missing} messages in front of the newest copy are not in '{stream}': an interruption left them"
            " out",
            "start the sidecar until it is ready, stop it, and hand over then",
        )
    if resume.handled > entry.source_last:
        return Waiting(
            f"'{stream}' holds a copy of sequence {resume.handled}, and '{source.name}' ends at {entry.source_last}:"
            " it was restored or lost its end",
            "start the sidecar until it has copied a new message, and hand over then",
        )
    return resume.handled


async def doubt_behind(entry: EntryAtTarget, newest: Found | None, after: int) -> Doubt | None:
    """Whether newer copies than the newest one that is left may have been in the target.

    Args:
        entry: the entry.
        newest: where that one is stored; None where there is none, which means "anywhere in the target".
        after: the source's sequence of it; 0 without one.

    Returns:
        None if there was none for certain, or if it would make no difference.
    """
    stream = str(entry.target_info["config"]["name"])
    behind = newest.stored if newest else 0
    gaps = await _gaps(entry.target, stream, behind, entry.last)
    if not gaps.lost:
        return None
    sequences: list[int] = []
    destinations: list[bytes] = []
    all_put_again = True
    # Only then is a message that is gone one whose subject has a newer one.
    by_subject_only = _loses_by_subject_only(entry.target_info["config"])
    replay = Replay(entry.source_connection.api, entry.source.name, entry.filters, headers_only=True)
    async with contextlib.aclosing(replay.between(after + 1, entry.source_last)) as batches:
        async for batch in batches:
            for subject, reply, _, _ in batch:
                destination = entry.sourcing.destination(subject)
                if destination is None:
                    continue
                ack = AckReply.parse(reply)
                put = gaps.newest.get(destination, 0)
                # Copies are made in order: where one was certainly not made, none after it was.
                if ack.time_ns > gaps.until_ns or (by_subject_only and put < ack.time_ns):
                    return _doubt(gaps.lost, sequences, destinations, put_again=all_put_again)
                sequences.append(ack.stream_sequence)
                destinations.append(destination)
                all_put_again &= put > 0
                if len(sequences) == gaps.lost:
                    return _doubt(gaps.lost, sequences, destinations, put_again=all_put_again)
    return _doubt(gaps.lost, sequences, destinations, put_again=all_put_again)


def _doubt(gone: int, sequences: Sequence[int], destinations: Sequence[bytes], *, put_again: bool) -> Doubt | None:
    if not sequences:
        return None
    return Doubt(gone, tuple(sequences), tuple(dict.fromkeys(destinations)), put_again)


@dataclass(frozen=True, slots=True)
class _Gaps:
    """Finds gaps in a part of the target.

    Attributes:
        lost: how many sequences hold nothing.
        until_ns: the latest time at which one of them can have been stored.
        newest: when the newest message of each subject was stored.
    """

    lost: int
    until_ns: int
    newest: dict[bytes, int]


async def _gaps(target: Connection, stream: str, behind: int, last: int) -> _Gaps:
    lost, until_ns, expected = 0, 0, behind + 1
    newest: dict[bytes, int] = {}
    async with contextlib.aclosing(Replay(target.api, stream, headers_only=True).between(behind + 1, last)) as batches:
        async for batch in batches:
            for subject, reply, _, _ in batch:
                ack = AckReply.parse(reply)
                if ack.stream_sequence > expected:
                    lost += ack.stream_sequence - expected
                    until_ns = ack.time_ns
                expected = ack.stream_sequence + 1
                newest[subject] = ack.time_ns
    if expected <= last:
        lost += last + 1 - expected
        until_ns = time.time_ns()
    return _Gaps(lost, until_ns, newest)


def _loses_by_subject_only(config: Json) -> bool:
    """Whether nothing but newer messages of the same subject can remove a message, as in most buckets."""
    unlimited = all(int(config.get(name) or 0) <= 0 for name in ("max_msgs", "max_bytes", "max_age"))
    return bool(
        config.get("deny_delete")
        and config.get("retention") == "limits"
        and int(config.get("max_msgs_per_subject", -1)) > 0
        and unlimited
        and not config.get("allow_msg_ttl")
    )
