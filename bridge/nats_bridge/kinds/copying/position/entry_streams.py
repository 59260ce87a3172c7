"""The two streams of an entry at one moment: the newest copies in the target, and whether the source is their source.

The target is read backwards from its end, headers only, in growing pieces, until enough copies of the entry are found
to know its position and whether some are missing after an interruption. Only copies that were in flight together can
have a missing one between them, so a search ends early at copies that are too old or too far away for that. An
interruption can change the order: 94 is stored, and then 93, which was missing. The newest piece can begin between
them, so that 94 seems to be missing. So a search for missing copies is repeated further back, without these limits
(`of_any_age`).

```text
the newest copy is 900, stored at 12:00:00; wanted are 2                  the search ends     because
899 was stored at 11:59:59, in the piece that is read first               after that piece    it has enough: `is_cut`
899 was stored at 11:50:00, in the piece that is read first               after that piece    899 is too old
`MOST` sequences before 900 hold no copies of the entry                   there               the next is too far away
no copy is found at all                                                   at the beginning    nothing is left
```

The id of a copy contains the time of its message in the source. So a few of these messages are read from the source
(`nats_bridge.client.stream_identity`) if its creation time has changed. Copies with their publishers' ids only have a
sequence. Then id and payload must be equal. A recreated source with equal messages under the same sequences is taken
for the previous one, which is harmless because the target has all of them. If all messages differ, a source that was
created before its newest copy was stored is the previous one, and has lost its messages. No other times of source and
target are compared, because their clocks can differ.

The last sequence is found by a message that the stream must refuse (`last_sequence_after_sent`).
`Nats-Expected-Last-Sequence` with an unreachable number makes the stream store nothing and answer `wrong last sequence:
N` (10071), after everything that this connection sent before. N counts messages that a cluster has agreed on, so it is
at least the sequence of any earlier copy. (2.9.10, 2.10.27 and 2.15.1; one server and three.)

A counter stream with replicas answers earlier, that the increment is missing (10169; 2.12.15, 2.14.9, 2.15.1). Messages
sent before are stored as soon as the cluster agrees, so its end is read until it stays the same. A message stored later
than that is sent again, but not stored twice because of its message id.

A server that finds a stream's file damaged drops the messages after the damage, and answers with the old number until
it stores the next message (2.15.1). So the answer is compared with `STREAM.INFO`. If a stream with one replica gives
the same answer twice, and does not show that sequence, `STREAM.INFO` is right. Replicas are asked again until they
show it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Final

import structlog

from nats_bridge.client import nats_py
from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import JetStreamApi, Json
from nats_bridge.client.pub_ack import INCREMENT_MISSING, PubAck
from nats_bridge.client.stream_identity import Bounds, KnownStream, MessageStamp, Verdict
from nats_bridge.client.waiting import ANSWER, ANSWER_OF_LEADER, LEADER_AWAY
from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.ack_reply import AckReply
from nats_bridge.consuming.replay import Replay
from nats_bridge.consuming.stream_range import backwards, first_sequence
from nats_bridge.errors import ApiError, RuleRefusedError
from nats_bridge.kinds.copying.target import Target
from nats_bridge.kinds.copying.writing.in_flight import MOST
from nats_transforms import header_block
from nats_transforms.copy_id import CopyId, entry_key, without_copy_id
from nats_transforms.source_record import SourceRecord
from nats_transforms.sourcing import Sourcing
from nats_transforms.timestamp import nanoseconds_of

_log = structlog.get_logger("bridge.copying.target_tail")

_BEYOND = {"Nats-Expected-Last-Sequence": str(2**63 - 1)}
_MOST_CHECKS = 50
_REPORTED = 65536  # sequences without a copy, after each of which the log says so
_IN_FLIGHT_NS = int(ANSWER * 10**9)
TOGETHER_NS = 60 * 10**9  # copies that were in flight at the same time are stored within this of each other


async def last_sequence_after_sent(
    connection: Connection, stream: str, subject: bytes, note_blocked: Callable[[str], None] = lambda _: None
) -> int:
    """Return the stream's last sequence, after everything that was sent on this connection before.

    It waits without a limit for the stream to answer, so a caller that must not wait cancels it.

    Args:
        connection: the connection of the target.
        subject: one that it stores.
        note_blocked: called with the awaited event, as a phrase, each time that the subject has no responders, or that
            the stream does not show the sequence which it has answered.

    Raises:
        RuleRefusedError: another stream answers, or the stream refuses every message.
        ApiError: the stream no longer exists, or the server does not answer about it.
    """
    unseen = -1  # an answer that the stream did not show
    while True:
        await connection.connected()
        try:
            # Copies bypass nats-py's buffer, so they are written before this request.
            answer = await connection.client.request(subject.decode(), b"", timeout=ANSWER_OF_LEADER, headers=_BEYOND)
        except nats_py.errors.NoRespondersError:
            # No responders: between two leaders, or permanently.
            await connection.api.stream_info(stream)
            note_blocked(
                f"stream '{stream}' to answer on its subject '{subject.decode()}', which has no responders"
                " (has it a leader, or does a mapping of the account lead its subjects away?)"
            )
        except (nats_py.errors.Error, OSError):
            pass
        else:
            pub_ack = PubAck.parse(b"", answer.data)
            if pub_ack.stream and pub_ack.stream != stream:
                raise RuleRefusedError(
                    f"subject '{subject.decode()}' is stored by stream '{pub_ack.stream}', not by '{stream}'"
                )
            if pub_ack.last_sequence is not None:
                shown, unreplicated = await _shown(connection, stream, pub_ack.last_sequence)
                if shown >= pub_ack.last_sequence or (unreplicated and shown >= 0 and pub_ack.last_sequence == unseen):
                    return shown
                unseen = pub_ack.last_sequence
                note_blocked(
                    f"stream '{stream}' to hold the message {unseen} that it has named as its last, and not {shown}"
                )
                continue
            if pub_ack.err_code == INCREMENT_MISSING:
                return await _standing(connection, stream)
            if pub_ack.kind == "refused":
                raise RuleRefusedError(
                    f"stream '{stream}' takes no messages: {pub_ack.description} ({pub_ack.err_code})"
                )
        await LEADER_AWAY.pause()


async def _standing(connection: Connection, stream: str) -> int:
    """Return the last sequence that a stream shows twice in a row."""
    before = -1
    while True:
        last = int((await connection.api.stream_info(stream))["state"]["last_seq"])
        if last == before:
            return last
        before = last
        await LEADER_AWAY.pause()


async def _shown(connection: Connection, stream: str, last: int) -> tuple[int, bool]:
    """Wait until the stream shows the sequence that it has agreed on, which can take a moment in a cluster.

    Returns:
        The last sequence (-1 if unknown), and whether the stream has one replica, so it needs no agreement.
    """
    shown, unreplicated = -1, False
    for _ in range(_MOST_CHECKS):
        try:
            info = await connection.api.stream_info(stream)
        except ApiError as error:
            if not error.retriable:
                raise
            shown = -1
        else:
            shown, unreplicated = int(info["state"]["last_seq"]), int(info["config"].get("num_replicas", 1)) == 1
        if shown >= last or unreplicated:
            break
        await LEADER_AWAY.pause()
    return shown, unreplicated


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
        has_gaps: whether sequences in the searched part of the target no longer hold messages.
        is_cut: whether the search ended because it had enough copies. Then copies further back can have been in flight
            together with these.
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
    of_any_age: bool = False,
) -> TargetTail:
    """Read the newest copies of an entry, no more than are wanted.

    The search reads whole pieces. It ends after the first piece that fulfils one of these conditions:

    * the number of wanted copies is reached;
    * its first copy was stored more than a minute (`TOGETHER_NS`) before the newest one;
    * it has no copy, and begins `MOST` sequences or more before the piece with the lowest copy;
    * it begins with the stream's first message.

    Older copies of the last piece are among the result. As long as no copy is found, only the last condition applies,
    so the whole stream is searched.

    Args:
        api: the API of the target's connection.
        last: its last sequence.
        record_of: returns the source record in a header block of the entry's copies; None for other messages.
        wanted: the number of copies that is enough.
        rule: the rule's name, for the log.
        of_any_age: whether the second and third condition do not apply.
    """
    first = await first_sequence(api, stream)
    copies: list[StoredCopy] = []
    ids: set[bytes] = set()
    seen = farther = 0
    farther_ids: set[bytes] = set()  # of messages that no copy is known to precede
    is_cut = False
    replay = Replay(api, stream, headers_only=True)
    reported, lowest = 0, last + 1  # the sequence where the piece with the lowest copy begins
    async for piece in backwards(replay, first, last, partial(_Copies, record_of), copies, wanted):
        low, read = piece.low, piece.taker
        farther += piece.count
        farther_ids |= read.ids
        if read.copies:
            copies[:0] = read.copies
            ids |= farther_ids
            seen, lowest = seen + farther, low
            farther = 0
        if read.copies or not copies:
            farther_ids.clear()  # ids stored after all copies are irrelevant, and can be many
        # Between two copies that were in flight together, the target can hold many copies of other entries.
        young = read.copies[0].time_ns >= copies[-1].time_ns - TOGETHER_NS if read.copies else lowest - low < MOST
        has_enough = len(copies) >= wanted
        if has_enough or (copies and not young and not of_any_age):
            # The piece can begin with old copies although more young ones follow than are wanted.
            is_cut = has_enough and (of_any_age or copies[-wanted].time_ns >= copies[-1].time_ns - TOGETHER_NS)
            break
        searched = last - low + 1
        if not copies and searched > _REPORTED * (reported + 1):
            reported = searched // _REPORTED
            _log.info("copying.searching_position", rule=rule, stream=stream, searched=searched, left=low - first)
    return TargetTail(tuple(copies[-wanted:]), has_gaps=seen < last - lowest + 1, is_cut=is_cut, ids=frozenset(ids))


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


def is_of_this_source(copy: StoredCopy, key: bytes, since_ns: int) -> bool:
    """Return whether a copy is of this entry and of the present stream, and not of an earlier one of the same name.

    Records of the oldest form do not show their entry; then the ids do.

    Args:
        copy: any of the target's.
        key: the entry's key with the present source.
        since_ns: when the target stored the newest copy of an earlier one, in nanoseconds since 1970.
    """
    copy_id = copy.copy_id
    if copy_id is not None and (copy_id.is_of(key) or copy.record.filters is None):
        return copy_id.entry == key
    return copy.time_ns > since_ns


@dataclass(frozen=True, slots=True)
class SourceIdentity:
    """The facts that tell copies of the present source from others.

    Attributes:
        key: the entry's key with the present source, as the copies' ids have it.
        since_ns: the time when the target stored the newest copy of an earlier source, in nanoseconds since 1970; 0 for
            none.
        recreated: whether the newest confirmed copies are of an earlier source.
    """

    key: bytes
    since_ns: int = 0
    recreated: bool = False


LAST_UNKNOWN: Final = -1
"""Stands for the target's last sequence until everything that was sent before is known to be stored, or not to be."""


@dataclass(frozen=True)
class EntryStreams:
    """Source and target of an entry.

    Attributes:
        source: reads the source's messages, headers only.
        source_info: the source's `STREAM.INFO`.
        target_api: the API of the connection that holds the target.
        target_info: the target's `STREAM.INFO`.
        target: the same, as copying needs it.
        last: the target's last sequence, or `LAST_UNKNOWN`. No position is found with that.
        rule: the rule's name, for the log.
        identity: the facts that tell copies of the present source from others, once known.
    """

    sourcing: Sourcing
    source: Replay
    source_info: Json
    target_api: JetStreamApi
    target_info: Json
    target: Target
    last: int
    rule: str = ""
    identity: SourceIdentity | None = None

    @property
    def created(self) -> str:
        """The creation time of the source, in the server's format."""
        return str(self.source_info["created"])

    @property
    def fresh_key(self) -> bytes:
        """The entry's key, if the target has no copies of the source yet."""
        return entry_key(self.sourcing, self.created)

    @property
    def key(self) -> bytes:
        """The entry's key with the present source."""
        return self.identity.key if self.identity is not None else self.fresh_key

    @property
    def source_last(self) -> int:
        """The source's last sequence."""
        return int(self.source_info["state"]["last_seq"])

    async def newest(self, wanted: int, *, of_any_age: bool = False) -> TargetTail:
        """Return the newest copies of any stream with the source's name; see `read_tail`."""
        assert self.last != LAST_UNKNOWN, "an unread target must not look like an empty one"
        return await read_tail(
            self.target_api,
            self.target.name,
            self.last,
            self.sourcing.own_record,
            wanted,
            rule=self.rule,
            of_any_age=of_any_age,
        )

    async def newest_of_present(self, wanted: int, of_any_age: bool) -> TargetTail:
        """Return the newest copies of the present source."""
        return self.of_present(await self.newest(wanted, of_any_age=of_any_age))

    def of_present(self, tail: TargetTail) -> TargetTail:
        """Return the copies of the present source, of those that were read."""
        copies = tuple(copy for copy in tail.copies if is_of_this_source(copy, self.key, self.since_ns))
        return replace(tail, copies=copies)

    @property
    def since_ns(self) -> int:
        """When the target stored the newest copy of an earlier source, in nanoseconds since 1970; 0 for none."""
        return self.identity.since_ns if self.identity is not None else 0


async def identity_by_copies(streams: EntryStreams, copies: Sequence[StoredCopy]) -> SourceIdentity:
    """Return the source's identity. A few of the newest copies are compared with the messages of the source.

    If the copies have no ids of the entry and seem to be of another stream, the source may have lost its end. Then more
    of them are read, until one shows what is true, or the target has no more.

    Args:
        streams: the entry's.
        copies: the newest copies, in stored order.
    """
    while True:
        ours = [copy for copy in copies if copy.copy_id is not None and copy.copy_id.is_of(streams.fresh_key)]
        identity = await _identity(streams, copies, ours)
        if not identity.recreated or ours:
            return identity
        further = (await streams.newest(4 * len(copies), of_any_age=True)).copies
        if len(further) <= len(copies):
            return identity
        copies = further


async def _identity(streams: EntryStreams, copies: Sequence[StoredCopy], ours: Sequence[StoredCopy]) -> SourceIdentity:
    fresh = streams.fresh_key
    newest = ours[-1] if ours else None
    key = newest.copy_id.entry if newest is not None and newest.copy_id is not None else fresh
    verdict: Verdict = "same"
    if newest is not None and key != fresh:
        verdict = await _by_times(streams, [copy for copy in ours if copy.copy_id and copy.copy_id.entry == key])
    since = max((copy.time_ns for copy in ours if copy.copy_id is not None and copy.copy_id.entry != key), default=0)
    if verdict != "same" or newest is None:
        run = _newest_run(copies)
        if newest is None or newest not in run:
            # They have their publishers' ids.
            later = await _by_content(streams, run)
            if later == "same":
                key, since = fresh, newest.time_ns if newest is not None else 0
            verdict = later if later != "unknown" else verdict
    if verdict == "recreated" and not _is_older(streams, copies[-1]):
        return SourceIdentity(fresh, copies[-1].time_ns, recreated=True)
    return SourceIdentity(key, since)


def _is_older(streams: EntryStreams, newest: StoredCopy) -> bool:
    # The times of the answers show by how much the clocks differ. Servers before 2.10 do not report them, so their
    # clocks must be right. A copy in flight can be stored a few seconds after the source was recreated.
    source, target = streams.source_info, streams.target_info
    ahead = nanoseconds_of(target["ts"]) - nanoseconds_of(source["ts"]) if source.get("ts") and target.get("ts") else 0
    return nanoseconds_of(source["created"]) + ahead + _IN_FLIGHT_NS < newest.time_ns


def _newest_run(copies: Sequence[StoredCopy]) -> Sequence[StoredCopy]:
    """Return the newest copies with ascending sequences, which excludes copies of an earlier source."""
    start = 0
    for index, (one, following) in enumerate(pairwise(copies), 1):
        if following.record.sequence < one.record.sequence:
            start = index
    return copies[start:]


def _sample(copies: Sequence[StoredCopy], bounds: Bounds) -> list[StoredCopy]:
    """Return the lowest, a middle and the highest copy, by sequence, among those that the source can still have."""
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
    for copy in sample:  # a source that lost its end still has the lowest ones
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
