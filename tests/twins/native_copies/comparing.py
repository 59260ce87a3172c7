"""A stream that copied through the sidecar next to one that copied natively, message by message. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nats_bridge.transforms.dialect import dialect
from nats_bridge.transforms.republish import StoredMessage
from nats_bridge.transforms.source_record import HEADER, SourceRecord, external_name, first_record

_COUNTED = re.compile(rb"(?<=\r\nNats-Counter-Sources: )[^\r]*")
_LINE = b"\r\n" + HEADER + b": "


@dataclass(slots=True)
class Comparison:
    """What a comparison found.

    Attributes:
        equal: messages of which everything is equal, or differs by design in the record alone.
        by_design: differences that are documented, by name.
        removed_again: messages that the source removed again, and one side alone still copied.
        findings: all other differences, in words.
    """

    equal: int = 0
    by_design: int = 0
    removed_again: int = 0
    findings: list[str] = field(default_factory=list)

    def add(self, other: Comparison) -> None:
        """Add another one's."""
        self.equal += other.equal
        self.by_design += other.by_design
        self.removed_again += other.removed_again
        self.findings += other.findings


@dataclass(frozen=True, slots=True)
class Record:
    """What the record of a copy through the sidecar is to be.

    Attributes:
        stream: the source's name.
        api: the prefix of the API in `external`.
        filter_subject: of the source in the stream's configuration; empty for none.
        version: of the server that copies.
    """

    stream: str
    api: str
    filter_subject: str
    version: str

    def of(self, native: SourceRecord, subject: bytes) -> bytes:
        """The value, for a message with this native record that is stored under a subject."""
        record = replace(
            native,
            source=external_name(self.stream.encode(), self.api.encode()),
            filters=(self.filter_subject.encode() or b">",),
            destinations=(b">",),
            subject=subject,
        )
        return record.value(dialect(self.version))

    def counted(self, block: bytes, subject: bytes) -> bytes:
        """A native copy's header block with what a counter's copy is to name: the source, and the subject there."""

        def renamed(found: re.Match[bytes]) -> bytes:
            ((total,),) = (each.values() for each in json.loads(found[0]).values())
            name = external_name(self.stream.encode(), self.api.encode())
            return b'{"%b":{"%b":"%b"}}' % (name, subject, total.encode())

        return _COUNTED.sub(renamed, block)


def compare_mirrors(
    native: Sequence[StoredMessage], copied: Sequence[StoredMessage], held: Collection[int]
) -> Comparison:
    """Compare two mirrors of a stream: subject, header block, payload, sequence and time stamp.

    Args:
        native: what the wholly native one holds.
        copied: what that through the sidecar holds.
        held: the sequences that the source still holds: one alone may have read what the source has removed.
    """
    found = Comparison()
    mine, theirs = _numbered(copied, "copied", found), _numbered(native, "native", found)
    for sequence in sorted(mine.keys() | theirs.keys()):
        own, other = mine.get(sequence), theirs.get(sequence)
        if own == other:
            found.equal += 1
        elif (own is None or other is None) and sequence not in held:
            found.removed_again += 1
        else:
            found.findings.append(f"mirror, {sequence}: native {other}, copied {own}")
    return found


def compare_sources(
    native: Sequence[StoredMessage],
    copied: Sequence[StoredMessage],
    held: Collection[int],
    record: Record,
    *,
    contiguous: bool,
) -> Comparison:
    """Compare two streams with the same source: all but own sequences and time stamps, which are of the copying.

    Args:
        native, copied, held: as in `compare_mirrors`.
        record: what the copies' records are to be.
        contiguous: whether nothing removes messages from the copies.
    """
    found = Comparison()
    mine, theirs = _by_record(copied, "copied", found), _by_record(native, "native", found)
    numbers = [message.sequence for message in copied]
    if contiguous and numbers != list(range(1, len(numbers) + 1)):
        found.findings.append("sources: the copies' own sequences have gaps")
    for sequence in sorted(mine.keys() | theirs.keys()):
        own, other = mine.get(sequence), theirs.get(sequence)
        if own is None or other is None:
            if sequence in held:
                found.findings.append(f"sources, {sequence}: native {other}, copied {own}")
            else:
                found.removed_again += 1
            continue
        before, value, after = _apart(other)
        parsed = first_record(other.header_block)
        wanted = record.of(parsed, own.subject) if parsed else b""
        whole = record.counted(b"%b%b%b%b" % (before, _LINE, wanted, after), own.subject)
        if (own.subject, own.header_block, own.payload) != (other.subject, whole, other.payload):
            found.findings.append(f"sources, {sequence}: native {other}, copied {own}, record to be {wanted!r}")
        else:
            found.equal += 1
            found.by_design += wanted != value
    return found


def _numbered(messages: Sequence[StoredMessage], side: str, found: Comparison) -> Mapping[int, StoredMessage]:
    numbers = [message.sequence for message in messages]
    if numbers != sorted(set(numbers)):
        found.findings.append(f"mirror, {side}: out of order, or twice")
    return {message.sequence: message for message in messages}


def _by_record(messages: Sequence[StoredMessage], side: str, found: Comparison) -> Mapping[int, StoredMessage]:
    """By the sequence in the source; in a stream with one source it rises."""
    records = [first_record(message.header_block) for message in messages]
    numbers = [record.sequence if record else 0 for record in records]
    if numbers != sorted(set(numbers)) or 0 in numbers:
        found.findings.append(f"sources, {side}: out of order, without a record, or twice")
    return dict(zip(numbers, messages, strict=True))


def _apart(message: StoredMessage) -> tuple[bytes, bytes, bytes]:
    """A header block before its record, the record, and behind it."""
    before, _, rest = message.header_block.partition(_LINE)
    value, end, after = rest.partition(b"\r\n")
    return before, value, end + after
