"""Reads the provenance of a stored message from its header block.

Theory of operation. A copy names its source in a source record (`Nats-Stream-Source`, or `Nats-Bridge-Source` if the
target's server refuses that from clients), and a republished message in the lines `Nats-Stream` and `Nats-Sequence`.
All are appended, so if a message has several, the last one is from the last step.
"""

import re
from dataclasses import dataclass

from nats_transforms import header_block
from nats_transforms.republish import LINES, OPTIONAL_LINES
from nats_transforms.source_record import HEADER, JOINT, TWIN_HEADER, first_record

_VALUES = {
    b"Nats-Stream": rb"[^\r\n]+",
    b"Nats-Subject": rb"[^\r]*",
    b"Nats-Sequence": rb"[0-9]{1,20}",
    b"Nats-Last-Sequence": rb"[0-9]+",
    b"Nats-Msg-Size": rb"[0-9]+",
}


def _line(name: bytes) -> bytes:
    optional = b"?" if name in OPTIONAL_LINES else b""
    return rb"(?:%b: %b\r\n)%b" % (name, _VALUES.get(name, rb"[^\r\n]*"), optional)


_REPUBLISHED = re.compile(rb"\n%b\r\n\Z" % b"".join(map(_line, LINES)))
_LARGEST = 2**63 - 1  # limit of a column in Spark; no stream comes near
_HASHED = re.compile(rb":[0-9A-Za-z]{8}")


@dataclass(frozen=True, slots=True)
class Provenance:
    """The message that another one was made of.

    Attributes:
        source: the stream's name, with `:HASH` for an external one.
        entry: the filters and destinations of the entry that copied it, as in the record; empty if it has none.
    """

    source: bytes
    sequence: int
    entry: bytes = b""


def provenance(block: bytes) -> Provenance | None:
    """Return the provenance in a header block; None without a valid one."""
    if b"\nNats-" not in block or b"\r\n" not in block:
        return None
    names = (HEADER, TWIN_HEADER)
    record, name = next(((first, name) for name in names if (first := first_record(block, name))), (None, b""))
    stream, sequence = header_block.read(block, b"Nats-Stream"), header_block.read(block, b"Nats-Sequence")
    if (
        stream
        and sequence
        and sequence.isdigit()
        and len(sequence) <= 20
        and (record is None or block.rfind(b"\nNats-Stream:") > block.find(b"\n" + name + b":"))
    ):
        found = Provenance(stream, int(sequence))
    elif record is None:
        return None
    else:
        entry = b""
        if record.filters is not None and record.destinations is not None:
            entry = JOINT.join(record.filters) + b" " + JOINT.join(record.destinations)
        found = Provenance(record.source, record.sequence, entry)
    return found if found.sequence <= _LARGEST else None


def without_republished_lines(block: bytes) -> bytes:
    """Return a header block without the lines that republishing appended; unchanged if it does not end in them."""
    found = _REPUBLISHED.search(block)
    if found is None:
        return block
    left = block[: found.start() + 1] + b"\r\n"
    return b"" if left == header_block.START + b"\r\n" else left


def same_source(shown: bytes, name: bytes) -> bool:
    """Return whether a record's source is the stream of this name: itself, or as an external one with its hash."""
    return shown == name or (shown.startswith(name) and _HASHED.fullmatch(shown, len(name)) is not None)
