"""Copies as a target holds them, taken apart: what the message was, and what was added to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nats_transforms.copy_id import CopyId
from nats_transforms.republish import StoredMessage
from nats_transforms.source_record import HEADER, TWIN_HEADER, first_record
from tests.live.raw_messages import RawPeer
from tests.live.stored_messages import stored_messages

_START = b"NATS/1.0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class CopiedMessage:
    """One copy; `block` is what the application's headers are, `b""` for none; `record` the raw value, less field 6."""

    subject: bytes
    block: bytes
    payload: bytes
    record: bytes

    @property
    def entry(self) -> tuple[Any, ...]:
        """The entry that made it, if the record names it."""
        record = first_record(b"\n" + HEADER + b": " + self.record)
        return (record.source, record.filters, record.destinations) if record else ()

    @property
    def place(self) -> tuple[bytes, bytes]:
        """What distinguishes it from other copies: its subject and its source message."""
        return self.subject, b" ".join(self.record.split(b" ")[:2])

    @property
    def sequence(self) -> int:
        """Its sequence in the source."""
        return int(self.record.split(b" ")[1])


def taken_apart(message: StoredMessage) -> CopiedMessage:
    """A stored copy without what the server or the bridge added to it."""
    kept, record = [], b""
    for line in message.header_block.split(b"\r\n"):
        name, _, value = line.partition(b": ")
        if name in (HEADER, TWIN_HEADER):
            record = b" ".join(value.split(b" ")[:5])
        elif name != b"Nats-Msg-Id" or CopyId.parse(value) is None:
            kept.append(line)
    block = b"\r\n".join(kept)
    return CopiedMessage(message.subject, b"" if block == _START else block, message.payload, record)


async def copied(peer: RawPeer, stream: str) -> list[CopiedMessage]:
    """All copies in a stream."""
    return [taken_apart(message) for message in await everything(peer, stream)]


async def everything(peer: RawPeer, stream: str) -> list[StoredMessage]:
    """All messages in a stream."""
    return await stored_messages(peer, stream, None)


async def last_sequence(peer: RawPeer, stream: str) -> int:
    """A stream's last sequence."""
    return int((await peer.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"])


def by_entry(copies: Sequence[CopiedMessage]) -> dict[tuple[Any, ...], list[CopiedMessage]]:
    """Copies in stored order, per entry: between entries no order is promised."""
    entries: dict[tuple[Any, ...], list[CopiedMessage]] = {}
    for copy in copies:
        entries.setdefault(copy.entry, []).append(copy)
    return entries
