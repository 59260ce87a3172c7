"""Finds how far the bridge got with one entry, and whether the target's records still prove it.

Where the target lost messages after the newest copy that is left (a delete, a bucket's key that was put again, a
limit), one of them may have been a newer copy. What the bridge would do then is no help: it knows no more.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

from nats_bridge.bridge.client.jetstream_api import Json
from nats_bridge.bridge.consuming.ack_reply import AckReply
from nats_bridge.bridge.consuming.replay import Replay
from nats_bridge.bridge.jobs.handoff.native_search import Found
from nats_bridge.bridge.kinds.copying.entry_streams import EntryStreams
from nats_bridge.bridge.kinds.copying.resume_point import identity_changed
from nats_bridge.bridge.kinds.copying.resuming import NEWEST, compared_entry

_MOST_LISTED = 5


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


async def copied_up_to(streams: EntryStreams) -> int | Waiting | None:
    """The source's sequence up to which everything is in the target; what must be done first; None without any copy.

    Raises:
        ApiError: a server cannot be asked.
    """
    source, stream = streams.source.stream, streams.target.name
    tail = await streams.newest(NEWEST)
    if identity_changed(tail.copies, streams.key, streams.created_ns):
        return Waiting(
            f"stream '{source}' is a new one (created {streams.created}), and '{stream}' holds copies of the old one"
            " only",
            "set on_recreated: restart, start the sidecar until it has copied a message of the new one, and hand over"
            " then",
        )
    tail = streams.of_present(tail)
    if not tail.copies:
        return None
    resume = await compared_entry(streams, tail, streams.newest_of_present)
    if resume.missing:
        return Waiting(
            f"{resume.missing} messages in front of the newest copy are not in '{stream}': an interruption left them"
            " out",
            "start the sidecar until it is ready, stop it, and hand over then",
        )
    if resume.handled > streams.source_last:
        return Waiting(
            f"'{stream}' holds a copy of sequence {resume.handled}, and '{source}' ends at {streams.source_last}:"
            " it was restored or lost its end",
            "start the sidecar until it has copied a new message, and hand over then",
        )
    return resume.handled


async def doubt_behind(streams: EntryStreams, newest: Found | None, after: int) -> Doubt | None:
    """Whether newer copies than the newest one that is left may have been in the target.

    Args:
        streams: the entry's.
        newest: where that one is stored; None where there is none, which means "anywhere in the target".
        after: the source's sequence of it; 0 without one.

    Returns:
        None if there was none for certain, or if it would make no difference.
    """
    gaps = await _gaps(streams, newest.stored if newest else 0)
    if not gaps.lost:
        return None
    sequences: list[int] = []
    destinations: list[bytes] = []
    all_put_again = True
    # Only then is a message that is gone one whose subject has a newer one.
    by_subject_only = _loses_by_subject_only(streams.target_info["config"])
    async with contextlib.aclosing(streams.source.between(after + 1, streams.source_last)) as batches:
        async for batch in batches:
            for subject, reply, _, _ in batch:
                destination = streams.sourcing.destination(subject)
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


async def _gaps(streams: EntryStreams, behind: int) -> _Gaps:
    lost, until_ns, expected, last = 0, 0, behind + 1, streams.last
    newest: dict[bytes, int] = {}
    replay = Replay(streams.target_api, streams.target.name, headers_only=True)
    async with contextlib.aclosing(replay.between(behind + 1, last)) as batches:
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
