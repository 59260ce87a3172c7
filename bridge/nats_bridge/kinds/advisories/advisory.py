"""Parses advisories, and makes the messages that report them. Pure: bytes in, bytes out.

An advisory that is republished alone keeps its payload, and headers identify it. If the message is attached, the
message keeps its payload and header block, and headers after it describe the advisory.

Headers that would act in a stream that stores such a message (expectations, a rollup, a time to live, an id, …) were
set for the original stream, so `Nats-X` is renamed to `Nats-Bridge-Original-X`. The id is the advisory's, so the same
advisory is stored once.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Self

from nats_transforms import header_block
from nats_transforms.republish import StoredMessage
from nats_transforms.timestamp import nanoseconds_of, rfc3339_nano

_ACTING = re.compile(
    rb"(?<=\n)Nats-((?:Msg-Id|Rollup|TTL|Stream-Source|Incr|Expected-[^:\r\n]*|Batch-[^:\r\n]*|Schedule[^:\r\n]*):)"
)
_OURS = (b"Advisory", b"Advisory-Id", b"Advisory-Json", b"Consumer", b"Deliveries", b"Reason", b"Message")
STREAM_NAME = re.compile(r"[^\s.*>/\\\x00-\x1f\x7f\ud800-\udfff]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


@dataclass(frozen=True, slots=True)
class Advisory:
    """An advisory as it was received, and its members; missing ones are empty or 0.

    Attributes:
        subject: the subject it was sent on.
        payload: its JSON, or anything else that a client sent.
        kind: its type, such as `io.nats.jetstream.advisory.v1.max_deliver`.
        id: unique to it.
        stream: the stream that it is about.
        consumer: the consumer that it is about.
        sequence: stream sequence of the message that it is about.
        deliveries: how often that was delivered.
        reason: why it was terminated.
        time_ns: when it was made, nanoseconds since 1970.
    """

    subject: bytes
    payload: bytes
    kind: str = ""
    id: str = ""
    stream: str = ""
    consumer: str = ""
    sequence: int = 0
    deliveries: int = 0
    reason: str = ""
    time_ns: int = 0

    @classmethod
    def read(cls, subject: bytes, payload: bytes) -> Self:
        """Read an advisory. Any client may send one that is not JSON; it then has no members."""
        try:
            found = json.loads(payload)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            return cls(subject, payload)
        return cls(
            subject,
            payload,
            _text(found, "type"),
            _text(found, "id"),
            _text(found, "stream"),
            _text(found, "consumer"),
            _number(found, "stream_seq"),
            _number(found, "deliveries"),
            _text(found, "reason"),
            _time(_text(found, "timestamp")),
        )

    @property
    def names_a_message(self) -> bool:
        """Whether it names a stored message, of the stream and consumer in its subject."""
        # The JSON may come from a client that may only publish on the subject of one consumer.
        about = f".{self.stream}.{self.consumer}".encode("utf-8", "surrogatepass")
        return self.sequence > 0 and STREAM_NAME.fullmatch(self.stream) is not None and self.subject.endswith(about)


def advisory_block(advisory: Advisory, *, size: int | None = None, note: str = "") -> bytes:
    """Return the header block of a republished advisory.

    Args:
        size: its payload's size in bytes, if the payload is left out.
        note: the reason why the message is not attached, for `Nats-Bridge-Message`.
    """
    lines = [(b"Nats-Subject", advisory.subject)]
    if note:
        lines.append((b"Nats-Bridge-Message", _header_value(note)))
    return header_block.append(b"", [*lines, *_closing(advisory, size)])


def attached_block(advisory: Advisory, message: StoredMessage, *, timed: bool, headers_only: bool = False) -> bytes:
    """Return the header block of the message for an advisory.

    Args:
        timed: whether the dialect's republished messages contain the time.
        headers_only: whether the payload is left out.
    """
    block = message.header_block
    for name in _OURS:  # of a message that was a dead letter before
        block = header_block.remove(block, b"Nats-Bridge-" + name)
    block = header_block.untraced(block)
    block = _ACTING.sub(rb"Nats-Bridge-Original-\1", block)
    lines = [
        (b"Nats-Stream", advisory.stream.encode()),
        (b"Nats-Subject", message.subject),
        (b"Nats-Sequence", b"%d" % message.sequence),
    ]
    if timed:
        lines.append((b"Nats-Time-Stamp", rfc3339_nano(message.time_ns)))
    lines.append((b"Nats-Bridge-Advisory", _header_value(advisory.kind)))
    lines.append((b"Nats-Bridge-Advisory-Id", _header_value(advisory.id)))
    lines.append((b"Nats-Bridge-Consumer", _header_value(advisory.consumer)))
    lines.append((b"Nats-Bridge-Deliveries", b"%d" % advisory.deliveries))
    if advisory.reason:
        lines.append((b"Nats-Bridge-Reason", _header_value(advisory.reason)))
    lines.append((b"Nats-Bridge-Advisory-Json", _one_line(advisory.payload)))
    return header_block.append(block, [*lines, *_closing(advisory, len(message.payload) if headers_only else None)])


def _closing(advisory: Advisory, size: int | None) -> list[tuple[bytes, bytes]]:
    lines = [(b"Nats-Msg-Id", _header_value(advisory.id))] if advisory.id else []
    return lines if size is None else [*lines, (b"Nats-Msg-Size", b"%d" % size)]


def _header_value(text: str) -> bytes:
    # A foreign text must not begin another header.
    return _CONTROL.sub(" ", text).encode("utf-8", "surrogatepass")


def _one_line(payload: bytes) -> bytes:
    if b"\n" not in payload and b"\r" not in payload:
        return payload
    return json.dumps(json.loads(payload), separators=(",", ":")).encode()


def _text(found: dict[str, Any], member: str) -> str:
    value = found.get(member)
    return value if isinstance(value, str) else ""


def _time(text: str) -> int:
    try:
        return nanoseconds_of(text)
    except ValueError:
        return 0


def _number(found: dict[str, Any], member: str) -> int:
    value = found.get(member)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
