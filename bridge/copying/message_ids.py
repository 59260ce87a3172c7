"""The `Nats-Msg-Id` of a copy: which message of which stream it is, so that the target stores it once.

A publisher's own id is left alone; it does the same service. Ours is only given to messages that have none:
`bridge-<entry>-<sequence>-<time>`, where `<entry>` stands for the origin (its name and creation time) and what is
selected from it, and sequence and time are the message's in the origin. The time is there because a server that lost
the end of its store gives the same sequences again, to other messages.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from transforms.sourcing import Sourcing

__all__ = ["CopyId", "entry_key"]

_SHAPE = re.compile(rb"bridge-([0-9a-f]{12})-([0-9]{1,20})-([0-9]{1,20})")
_KEY_LENGTH = 12


def entry_key(sourcing: Sourcing, created: str) -> bytes:
    """What stands for an entry and its origin in ids.

    Args:
        sourcing: the compiled entry.
        created: the origin's creation time, as `STREAM.INFO` tells it.
    """
    told = b"\n".join([sourcing.origin, created.encode(), *sourcing.record_filters, b"", *sourcing.record_destinations])
    return hashlib.sha256(told).hexdigest()[:_KEY_LENGTH].encode()


@dataclass(frozen=True, slots=True)
class CopyId:
    """What one of our ids says.

    Attributes:
        entry: the entry's key.
        sequence: the message's sequence in the origin.
        time_ns: its time stamp there, in nanoseconds since 1970.
    """

    entry: bytes
    sequence: int
    time_ns: int

    @classmethod
    def parse(cls, value: bytes | None) -> CopyId | None:
        """Read a header value; None if it is not one of ours."""
        shape = _SHAPE.fullmatch(value) if value else None
        return cls(shape[1], int(shape[2]), int(shape[3])) if shape else None
