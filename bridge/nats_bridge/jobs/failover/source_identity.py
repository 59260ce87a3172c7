"""Decides which of a target's copies are of the present source, also while its server is away.

See `nats_bridge.kinds.copying.position.entry_streams`. A source that does not answer is recognised only by the first
and last message in its saved state.
"""

from dataclasses import replace

from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import JetStreamApi
from nats_bridge.client.stream_identity import Bounds, KnownStream, MessageStamp, judge
from nats_bridge.consuming.replay import Replay
from nats_bridge.jobs.failover.copied_stream import CopiedStream, Entry
from nats_bridge.kinds.copying.position.comparing import NEWEST
from nats_bridge.kinds.copying.position.entry_streams import (
    EntryStreams,
    SourceIdentity,
    StoredCopy,
    identity_by_copies,
    read_tail,
)
from nats_bridge.kinds.copying.target import Target
from nats_transforms import header_block
from nats_transforms.copy_id import CopyId
from nats_transforms.source_record import SourceRecord, last_record


async def identify(copied: CopiedStream, target: Connection, source: JetStreamApi | None) -> bool:
    """Find out which copies are of the present source, for each entry.

    Args:
        copied: the stream and its copy; the `identity` of its entries is filled in.
        target: the connection of the copy's stream.
        source: the API of the source's connection; None if it does not answer.

    Returns:
        True if the target has copies of the present source, or none at all.
    """
    if copied.keeps_sequence:
        return not await _holds_another(copied, target.api, source)
    for place, entry in enumerate(copied.entries):
        copied.entries[place] = replace(entry, identity=await _identity(copied, entry, target, source))
    return True


async def _identity(
    copied: CopiedStream, entry: Entry, target: Connection, source: JetStreamApi | None
) -> SourceIdentity:
    last = int(copied.target["state"]["last_seq"])

    def record_of(block: bytes) -> SourceRecord | None:
        record = last_record(block) if b"-Source:" in block else None
        return record if record is not None and entry.is_own(record) else None

    copies = (await read_tail(target.api, copied.target_name, last, record_of, NEWEST)).copies
    if source is None:
        return _by_bounds(copied, entry, copies)
    streams = EntryStreams(
        entry.sourcing,
        Replay(source, copied.source_name, headers_only=True),
        copied.source,
        target.api,
        copied.target,
        Target.of(copied.target, target.server_version),
        last,
    )
    return await identity_by_copies(streams, copies)


def _by_bounds(copied: CopiedStream, entry: Entry, copies: tuple[StoredCopy, ...]) -> SourceIdentity:
    ours = [(copy.copy_id, copy.time_ns) for copy in copies if copy.copy_id and copy.copy_id.is_of(entry.key)]
    if not entry.key or not ours:
        return SourceIdentity(entry.key)
    bounds, key = Bounds.of(copied.source), ours[-1][0].entry
    # Messages stored after the source was queried prove nothing.
    known = tuple(
        MessageStamp(each.sequence, each.time_ns)
        for each, _ in ours
        if each.entry == key and each.sequence <= bounds.last.sequence
    )
    if key == entry.key or judge(known, {}, bounds) != "recreated":
        return SourceIdentity(key, max((time_ns for each, time_ns in ours if each.entry != key), default=0))
    return SourceIdentity(entry.key, copies[-1].time_ns, recreated=True)


async def _holds_another(copied: CopiedStream, target: JetStreamApi, source: JetStreamApi | None) -> bool:
    """Return whether the newest message that both have under one sequence differs."""
    bounds = Bounds.of(copied.source)
    sequence = int(copied.target["state"]["last_seq"])
    if source is None:
        sequence = min(sequence, bounds.last.sequence)
    stored = await target.stored_message(copied.target_name, sequence) if sequence else None
    if stored is None:
        return False
    message_id = header_block.read(stored.header_block, b"Nats-Msg-Id")
    copy_id = CopyId.parse(message_id)
    if copy_id is not None or copied.target["config"].get("mirror"):  # a mirror keeps the times of messages
        known = MessageStamp(sequence, copy_id.time_ns if copy_id is not None else stored.time_ns)
        if source is None:
            return judge((known,), {}, bounds) == "recreated"
        return await KnownStream("", (known,)).verdict(source, copied.source) == "recreated"
    message = await source.stored_message(copied.source_name, sequence) if source is not None else None
    return message is not None and (
        header_block.read(message.header_block, b"Nats-Msg-Id") != message_id or message.payload != stored.payload
    )
