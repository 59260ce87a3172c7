"""Source records: the header of a copied message that names its source message.

Theory of operation. A server that copies a message from another stream appends one line, `Nats-Stream-Source`, and
finds its position after a restart by reading the last such line in its own store. The value is a list of fields between
single spaces; each minor line appended some fields:

====  ==========================================================  =========
 1    the source stream's name, `NAME:HASH` for an external one     always
      with `:C=HASH` after it if the entry has a consumer           2.14.0
 2    the source's sequence                                         always
 3    the filters of the entry, as configured                       2.10.0
 4    its destinations, as configured, up to the first space        2.10.0
 5    the subject in the source                                     2.12.0
 6    the source's identity, if its server reports one                2.15.0
====  ==========================================================  =========

Several filters are joined by form feeds, and so are several destinations; an empty one appears as `>`. Still older
servers wrote the whole reply subject of the delivery (`$JS.ACK.…`), which is read as stream and sequence. A subject
with a space (2.10 can store one) cannot be distinguished from the next field, so such a value is only read up to the
last numbered field.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from nats_transforms.dialect import NEWEST, Dialect
from nats_transforms.subject import REST

HEADER = b"Nats-Stream-Source"
"""The server's own header. 2.15 refuses it from clients (err_code 10227)."""

TWIN_HEADER = b"Nats-Bridge-Source"
"""The bridge's name of the header with the same value, for targets that refuse the server's header."""

SEPARATOR = b" "
JOINT = b"\x0c"
_ALPHABET = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_HASH_LENGTH = 8
_LARGEST = 2**64 - 1
_LONGEST = 40  # digits, leading zeros included
_ACK_PREFIX = b"$JS.ACK."
_ADDED_BEHIND = (b"Nats-Bridge-Counter-Sources:", b"Nats-Counter-Sources:", b"Nats-Request-Info:", b"Nats-Msg-Size:")


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """The content of one header value.

    Attributes:
        source: the name of the message's stream, with `:HASH` for an external one.
        sequence: its sequence there.
        filters: the texts of field 3; None in the oldest forms, which lack it.
        destinations: the texts of field 4, with `>` for an empty one; None in the oldest forms.
        subject: the subject there; empty if the value does not contain it.
        identity: the identity of the stream among those of its name; empty if the value does not contain it.
    """

    source: bytes
    sequence: int
    filters: tuple[bytes, ...] | None = None
    destinations: tuple[bytes, ...] | None = None
    subject: bytes = b""
    identity: bytes = b""

    @classmethod
    def parse(cls, value: bytes) -> SourceRecord | None:
        """Read a header value in any of its forms. Return None for other values."""
        if value.startswith(_ACK_PREFIX):
            return _from_reply(value)
        fields = value.split(SEPARATOR)
        if len(fields) in (1, 3) or not fields[0]:
            return None  # no version writes three fields, and servers do not read them either
        sequence = _number(fields[1])
        if sequence is None:
            return None
        if len(fields) < 4:
            return cls(fields[0], sequence)
        return cls(
            fields[0],
            sequence,
            tuple(fields[2].split(JOINT)),
            tuple(fields[3].split(JOINT)),
            fields[4] if len(fields) > 4 else b"",
            fields[5] if len(fields) > 5 else b"",
        )

    def value(self, dialect: Dialect = NEWEST) -> bytes:
        """Return the header value as a server of the dialect writes it."""
        fields = [self.source, b"%d" % self.sequence]
        if dialect.source_record_names_filters:
            fields += [_joined(self.filters), _joined(self.destinations)]
            if dialect.source_record_names_subject and self.subject:
                fields.append(self.subject)
                if dialect.source_record_names_identity and self.identity:
                    fields.append(self.identity)
        return SEPARATOR.join(fields)

    def is_of(self, source: bytes, filters: tuple[bytes, ...], destinations: tuple[bytes, ...]) -> bool:
        """Return whether a server attributes this record to the entry with these texts.

        The oldest forms, which name no filters, belong to every entry of their stream (2.10 to 2.15).
        """
        if self.source != source:
            return False
        if self.filters is None:
            return True
        return (_joined(self.filters), _joined(self.destinations)) == (_joined(filters), _joined(destinations))


def external_name(stream: bytes, api_prefix: bytes) -> bytes:
    """Return field 1 for a stream that is reached through another API prefix: `NAME:HASH`."""
    return stream + b":" + _hash(api_prefix)


def consumed_name(stream: bytes, consumer: bytes) -> bytes:
    """Return field 1 for an entry with a `consumer`: `NAME:C=HASH` (from 2.14 on), after an external name."""
    return stream + b":C=" + _hash(consumer)


def _hash(text: bytes) -> bytes:
    digest = hashlib.sha256(text).digest()[:_HASH_LENGTH]
    return bytes(_ALPHABET[byte % len(_ALPHABET)] for byte in digest)


def first_record(block: bytes, header: bytes = HEADER) -> SourceRecord | None:
    """Return the record in a header block, from the first line of that name, as in the server; None without one."""
    start = block.find(b"\n" + header + b":")
    if start < 0:
        return None
    start += len(header) + 2
    end = block.find(b"\r\n", start)
    return SourceRecord.parse(block[start : end if end >= 0 else len(block)].strip(b" \t"))


def last_record(block: bytes) -> SourceRecord | None:
    """Return the record of the last writer of this message here: the last line of its header block, under either name.

    Messages that a server derives from a copy keep the copy's record, followed by the server's own lines: those
    published by a schedule (`Nats-Scheduler`), republished ones (`Nats-Stream`), a copy of the copy (its own record).
    Such a record does not apply to this stream. Only lines added by storing and delivering may follow it.
    """
    lines = block.split(b"\r\n")
    while lines and (not lines[-1] or lines[-1].startswith(_ADDED_BEHIND)):
        lines.pop()
    name, colon, value = lines[-1].partition(b":") if lines else (b"", b"", b"")
    return SourceRecord.parse(value.strip(b" \t")) if colon and name in (HEADER, TWIN_HEADER) else None


def _joined(texts: tuple[bytes, ...] | None) -> bytes:
    return JOINT.join(text or REST for text in texts) if texts else REST


def _number(text: bytes) -> int | None:
    # Servers do not read other values than unsigned 64-bit numbers either (and `int` refuses thousands of digits).
    number = int(text) if text.isdigit() and len(text) <= _LONGEST else _LARGEST + 1
    return number if number <= _LARGEST else None


def _from_reply(reply: bytes) -> SourceRecord | None:
    """Read `$JS.ACK.<stream>.<consumer>.<deliveries>.<sequence>.…`.

    A domain and an account may come before the stream.
    """
    tokens = reply.split(b".")
    at = 2 if len(tokens) == 9 else 4
    if len(tokens) < 9:
        return None
    sequence = _number(tokens[at + 3])
    return None if sequence is None or not tokens[at] else SourceRecord(tokens[at], sequence)
