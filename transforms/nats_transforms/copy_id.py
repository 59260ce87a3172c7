"""The `Nats-Msg-Id` of a copy: names message and source, so that the target stores it once.

A publisher's own id is kept, because it serves the same purpose. The bridge only gives an id to messages that have
none, or that of an earlier copy: `bridge-<entry>-<sequence>-<time>`. `<entry>` identifies the selected messages and the
stream (first half) and the creation time of the stream (second half). Sequence and time are the message's in the
source. The time is needed because a server that lost the end of its store uses the same sequences again for other
messages.

In a chain of copies, each id replaces the previous one. So an id in a target shows which message of *its* source was
copied, and never looks like the id of another stream.

Targets keep these ids for as long as their messages: another form would copy everything again.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import Final, Self

from nats_transforms import header_block
from nats_transforms.sourcing import Sourcing

HEADER: Final = b"Nats-Msg-Id"
"""The header with the id."""

LINE_START: Final = HEADER + b": bridge-"
"""The start of the header line of every copy's id; a publisher's may begin like it."""

IN_BLOCK: Final = b"\n" + LINE_START
"""`LINE_START` as searched in a header block, after the previous line."""

_LINE: Final = LINE_START + b"%b-%b-%b"
_VALUE_AT: Final = len(HEADER) + 2
_HALF: Final = 6
_DIGITS: Final = rb"[0-9]{1,20}"


@dataclass(frozen=True, slots=True)
class CopyId:
    """The contents of a copy's id.

    Attributes:
        entry: the key of the entry, twelve hexadecimal digits; see `entry_key`.
        sequence: the message's sequence in the source.
        time_ns: its time stamp there, in nanoseconds since 1970.
    """

    entry: bytes
    sequence: int
    time_ns: int

    def format(self) -> bytes:
        """Return the id as the header's value; `parse` reads it."""
        return (_LINE % (self.entry, b"%d" % self.sequence, b"%d" % self.time_ns))[_VALUE_AT:]

    def is_of(self, key: bytes) -> bool:
        """Return whether it is of the entry with this key, with the present source or an earlier one of that name."""
        return self.entry[:_HALF] == key[:_HALF]

    @classmethod
    def parse(cls, value: bytes | None) -> Self | None:
        """Read a header value. Return None if it is not a copy's id."""
        shape = _SHAPE.fullmatch(HEADER + b": " + value) if value else None
        return cls(shape["entry"], int(shape["sequence"]), int(shape["time"])) if shape else None


def line_template(entry: bytes) -> bytes:
    """Return the header line of an entry's ids, with `%b` for the sequence and then for the time, both as digits."""
    return _LINE % (entry, b"%b", b"%b") + b"\r\n"


def line_pattern(entry: bytes | None = None) -> bytes:
    r"""Return a regular expression for the header line of an id, without its `\r\n`.

    Its groups are `entry`, `sequence` and `time`.

    Args:
        entry: the key of the entry whose ids match; None for every entry.
    """
    key = rb"[0-9a-f]{12}" if entry is None else re.escape(entry)
    return _LINE % (rb"(?P<entry>%b)" % key, rb"(?P<sequence>%b)" % _DIGITS, rb"(?P<time>%b)" % _DIGITS)


def without_copy_id(block: bytes) -> bytes:
    """Return a header block without the id of an earlier copy in a chain. A publisher's id stays."""
    if IN_BLOCK in block and CopyId.parse(header_block.read(block, HEADER)) is not None:
        return header_block.remove(block, HEADER)
    return block


def entry_key(sourcing: Sourcing, created: str) -> bytes:
    """Return the part of the ids that identifies an entry and its source.

    Args:
        sourcing: the compiled entry.
        created: the source's creation time, as `STREAM.INFO` reports it.
    """
    selection = b"\n".join([sourcing.source, *sourcing.record_filters, b"", *sourcing.record_destinations])
    return _half(selection) + _half(b"\n".join([selection, created.encode()]))


def _half(reported: bytes) -> bytes:
    return hashlib.sha256(reported).hexdigest()[:_HALF].encode()


_SHAPE: Final = re.compile(line_pattern())
