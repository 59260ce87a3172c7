"""The `Nats-Msg-Id` of a copy: names message and source, so that the target stores it once.

A publisher's own id is left alone; it does the same service. Ours is only given to messages that have none, or that
of an earlier copy: `bridge-<entry>-<sequence>-<time>`, where `<entry>` stands for what is selected from which stream
(the first half) and when that stream was created (the second), and sequence and time are the message's in the source.
The time is there because a server that lost the end of its store gives the same sequences again, to other messages.

In a chain of copies each one's id takes the place of the one before: an id in a target then says of which of *its*
source's messages a copy was made, and never looks like that of another stream.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from nats_transforms import header_block
from nats_transforms.sourcing import Sourcing

_SHAPE = re.compile(rb"bridge-([0-9a-f]{12})-([0-9]{1,20})-([0-9]{1,20})")
_HALF = 6
_NAME = b"Nats-Msg-Id"
_BEGINNING = b"\nNats-Msg-Id: bridge-"


def entry_key(sourcing: Sourcing, created: str) -> bytes:
    """The part of the ids that identifies an entry and its source.

    Args:
        sourcing: the compiled entry.
        created: the source's creation time, as `STREAM.INFO` reports it.
    """
    selection = b"\n".join([sourcing.source, *sourcing.record_filters, b"", *sourcing.record_destinations])
    return _half(selection) + _half(b"\n".join([selection, created.encode()]))


def without_earlier(block: bytes) -> bytes:
    """A header block without the id that an earlier copy of a chain was given; a publisher's stays."""
    if _BEGINNING in block and CopyId.parse(header_block.read(block, _NAME)) is not None:
        return header_block.remove(block, _NAME)
    return block


def _half(reported: bytes) -> bytes:
    return hashlib.sha256(reported).hexdigest()[:_HALF].encode()


@dataclass(frozen=True, slots=True)
class CopyId:
    """The contents of one of our ids.

    Attributes:
        entry: the entry's key.
        sequence: the message's sequence in the source.
        time_ns: its time stamp there, in nanoseconds since 1970.
    """

    entry: bytes
    sequence: int
    time_ns: int

    def is_of(self, key: bytes) -> bool:
        """Whether it is of the entry with this key, with the present source or an earlier one of that name."""
        return self.entry[:_HALF] == key[:_HALF]

    @classmethod
    def parse(cls, value: bytes | None) -> CopyId | None:
        """Read a header value; None if it is not one of ours."""
        shape = _SHAPE.fullmatch(value) if value else None
        return cls(shape[1], int(shape[2]), int(shape[3])) if shape else None
