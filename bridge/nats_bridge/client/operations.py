"""Builds the protocol operation that publishes a message, and bounds the length of operations that a server sends."""

from typing import Final

LONGEST_LINE: Final = 4 * 1024 * 1024
"""Bytes without a line end. INFO can be long in large clusters; no line is longer than this."""
_LONGEST_MESSAGE: Final = 256 * 1024 * 1024  # bytes; servers accept no larger ones


def publication(subject: bytes, reply: bytes, block: bytes, payload: bytes) -> bytes:
    """Return the operation that publishes a message. An empty `reply` or `block` is left out."""
    to = b"%b %b " % (subject, reply) if reply else subject + b" "
    if not block:
        return b"PUB %b%d\r\n%b\r\n" % (to, len(payload), payload)
    return b"HPUB %b%d %d\r\n%b%b\r\n" % (to, len(block), len(block) + len(payload), block, payload)


def checked_size(size: int) -> int:
    """Return the size that a message declares.

    Raise ValueError for an impossible one, instead of waiting for the bytes.
    """
    if not 0 <= size <= _LONGEST_MESSAGE:
        raise ValueError(f"a message of {size} bytes")
    return size


def parts_of(operation: bytes) -> tuple[bytes, bytes, bytes]:
    """Subject, header block and payload of an `HPUB` operation without a reply subject."""
    line, _, rest = operation.partition(b"\r\n")
    _, subject, size, total = line.split(b" ")
    return subject, rest[: int(size)], rest[int(size) : int(total)]
