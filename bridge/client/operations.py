"""The protocol operation that publishes a message, and its parts."""

from __future__ import annotations

__all__ = ["parts_of", "publication"]


def publication(subject: bytes, reply: bytes, block: bytes, payload: bytes) -> bytes:
    """The protocol operation that publishes a message; an empty `reply` or `block` is none."""
    to = b"%b %b " % (subject, reply) if reply else subject + b" "
    if not block:
        return b"PUB %b%d\r\n%b\r\n" % (to, len(payload), payload)
    return b"HPUB %b%d %d\r\n%b%b\r\n" % (to, len(block), len(block) + len(payload), block, payload)


def parts_of(operation: bytes) -> tuple[bytes, bytes, bytes]:
    """Subject, header block and payload of an `HPUB` operation without a reply subject."""
    line, _, rest = operation.partition(b"\r\n")
    _, subject, size, total = line.split(b" ")
    return subject, rest[: int(size)], rest[int(size) : int(total)]
