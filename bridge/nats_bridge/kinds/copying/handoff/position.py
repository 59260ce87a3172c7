"""Finds how far the bridge got with one entry, and whether the target's records still prove it.

If the target lost messages after its newest remaining copy (a delete, a bucket's key that was put again, a limit), one
of them may have been a newer copy. The bridge's own way of resuming cannot help, because it has no more information.
Times cannot help either, because source and target can be on servers whose clocks differ.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace

from nats_bridge.client.jetstream_api import Json
from nats_bridge.consuming.ack_reply import AckReply
from nats_bridge.consuming.replay import Replay
from nats_bridge.consuming.stream_range import messages
from nats_bridge.kinds.copying.handoff.native_search import NewestCopy
from nats_bridge.kinds.copying.position.comparing import NEWEST, compared_entry
from nats_bridge.kinds.copying.position.entry_streams import EntryStreams, identity_by_copies

_MOST_LISTED = 5


class EntryRefusedError(Exception):
    """No server can take over the entry now. `str` has the reason and a remedy, without the entry's name."""


async def copied_up_to(streams: EntryStreams) -> int | None:
    """Return the source's sequence up to which everything is in the target; None without any copy.

    Raises:
        EntryRefusedError: something must be done first.
        ApiError: a server refuses, or does not answer.
    """
    source, stream = streams.source.stream, streams.target.name
    tail = await streams.newest(NEWEST)
    streams = replace(streams, identity=await identity_by_copies(streams, tail.copies))
    if streams.identity is not None and streams.identity.recreated:
        raise EntryRefusedError(
            f"stream '{source}' is a new one (created {streams.created}), and '{stream}' holds copies of the old one"
            " only: set on_recreated: restart, start the sidecar until it has copied a message of the new one, and hand"
            " over then"
        )
    tail = streams.of_present(tail)
    if not tail.copies:
        return None
    resume = await compared_entry(streams, tail, streams.newest_of_present)
    if resume.missing:
        raise EntryRefusedError(
            f"{resume.missing} messages in front of the newest copy are not in '{stream}': an interruption left them"
            " out: start the sidecar until it is ready, stop it, and hand over then"
        )
    if resume.resume_after > streams.source_last:
        raise EntryRefusedError(
            f"'{stream}' holds a copy of sequence {resume.resume_after}, and '{source}' ends at {streams.source_last}:"
            " it was restored or lost its end: start the sidecar until it has copied a new message, and hand over then"
        )
    return resume.resume_after


async def check_newest(streams: EntryStreams, newest: NewestCopy | None, reached: int | None) -> None:
    """Check that the target did not contain copies newer than the newest remaining one, if that makes a difference.

    Args:
        streams: the entry's.
        newest: the newest remaining copy; None if there is none, so any position in the target is possible.
        reached: the source's sequence of that copy; None without one.

    Raises:
        EntryRefusedError: some may have been.
        ApiError: a server refuses, or does not answer.
    """
    gaps = await _gaps(streams, newest.stored if newest else 0)
    doubted = await _perhaps_copied(streams, gaps, reached or 0) if gaps.lost else []
    if not doubted:
        return
    target, source = streams.target.name, streams.source.stream
    first, last = doubted[0][0], doubted[-1][0]
    until = f" to {last}" if len(doubted) > 1 else ""
    if reached is None:
        why = "lost messages" if int(streams.target_info["state"]["messages"]) else "was purged"
        raise EntryRefusedError(
            f"'{target}' {why} and holds no copy any more, so the next message is unknown"
            f" ({source} holds {first}{until}): use --after {source}=SEQUENCE, the last one"
            " copied (0 for none), or start the sidecar, let it copy a message, and hand over then"
        )
    destinations = list(dict.fromkeys(destination for _, destination in doubted))
    if all(each in gaps.subjects for each in destinations):
        listed = ", ".join(f"'{each.decode('utf-8', 'replace')}'" for each in destinations[:_MOST_LISTED])
        more = len(destinations) - _MOST_LISTED
        raise EntryRefusedError(
            f"the newest copy left in '{target}' is of {reached}; {first}{until} may have been copied, too,"
            f" and put again locally on {listed}{f' and {more} more' if more > 0 else ''}: copied again, that would"
            f" overwrite the local value: use --after {source}=SEQUENCE, the last one copied ({reached} to {last})"
        )
    raise EntryRefusedError(
        f"the newest copy left in '{target}' is of {reached}, and {gaps.lost} messages after it are lost"
        f" (deleted?): {first}{until} may have been copied, too, or not: use --after {source}=SEQUENCE,"
        f" the last one copied ({reached} to {last}), or let the sidecar copy one more message first"
    )


async def _perhaps_copied(streams: EntryStreams, gaps: _Gaps, after: int) -> list[tuple[int, bytes]]:
    """Return sequences and destinations of messages whose copies may be lost, at most as many as were lost."""
    found: list[tuple[int, bytes]] = []
    # Only then does each lost message have a newer one with the same subject.
    by_subject_only = _loses_by_subject_only(streams.target_info["config"])
    async with contextlib.aclosing(messages(streams.source, after + 1, streams.source_last)) as following:
        async for subject, reply, _, _ in following:
            destination = streams.sourcing.destination(subject)
            if destination is None:
                continue
            # Copies are made in order: if one was certainly not made, no later one was.
            if by_subject_only and destination not in gaps.subjects:
                break
            found.append((AckReply.parse(reply).stream_sequence, destination))
            if len(found) == gaps.lost:
                break
    return found


@dataclass(frozen=True, slots=True)
class _Gaps:
    """Finds gaps in a part of the target.

    Attributes:
        lost: the number of empty sequences.
        subjects: the subjects of the remaining messages.
    """

    lost: int
    subjects: set[bytes]


async def _gaps(streams: EntryStreams, behind: int) -> _Gaps:
    held, last = 0, streams.last
    subjects: set[bytes] = set()
    replay = Replay(streams.target_api, streams.target.name, headers_only=True)
    async for subject, *_ in messages(replay, behind + 1, last):
        held += 1
        subjects.add(subject)
    return _Gaps(max(last - behind - held, 0), subjects)


def _loses_by_subject_only(config: Json) -> bool:
    """Return whether nothing but newer messages of the same subject can remove a message, as in most buckets."""
    unlimited = all(int(config.get(name) or 0) <= 0 for name in ("max_msgs", "max_bytes", "max_age"))
    return bool(
        config.get("deny_delete")
        and config.get("retention") == "limits"
        and int(config.get("max_msgs_per_subject", -1)) > 0
        and unlimited
        and not config.get("allow_msg_ttl")
    )
