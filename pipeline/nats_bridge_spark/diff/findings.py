"""Finds the differences between the messages of one identity.

Theory of operation. Usually an identity has one message on either side, and the two are compared field by field. If
there are more, copies by the same entry belong together, because two entries may copy one message on purpose. Of the
copies by one entry, one counts (one that equals its counterpart, if any), and all others are duplicates.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa

KINDS: Final[dict[str, str]] = {
    "missing": "on the left only",
    "extra": "on the right only",
    "duplicated": "the same identity a second time on one side",
    "subject": "another subject",
    "header": "a header with another value, or on one side only",
    "header-block": "the same headers in another order or spelling",
    "payload": "another payload",
    "order": "out of order: stored after a later message",
    "unidentified": "nothing identifies the message",
}
"""Every kind of finding with its meaning, in the order of the report."""

_LONGEST: Final = 4096  # characters of a value
_AROUND: Final = 16  # bytes of a payload shown from the first difference on


@dataclass(frozen=True, slots=True)
class ComparedMessage:
    """A message of one side in the compared form: `block` is without the parts left out."""

    sequence: int
    entry: bytes
    subject: bytes
    block: bytes
    data: bytes


class Finding(NamedTuple):
    """One difference; a row of `FINDINGS`.

    Attributes:
        identity: the message's identity as text; empty if it has none.
        field: the header of the finding, if it is about one; `left` or `right` for a duplicated or unidentified
            message.
        left_value: the readable value there; bytes that are not UTF-8 as `\\xNN`. None if it has none.
    """

    kind: str
    identity: str
    left_sequence: int | None
    right_sequence: int | None
    field: str = ""
    left_value: str | None = None
    right_value: str | None = None


FINDINGS: Final = pa.schema(
    [
        *((name, pa.string()) for name in Finding._fields[:2]),
        *((name, pa.int64()) for name in Finding._fields[2:4]),
        *((name, pa.string()) for name in Finding._fields[4:]),
    ]
)
"""The columns of the result."""


def found(identity: str, lefts: Sequence[ComparedMessage], rights: Sequence[ComparedMessage]) -> Iterator[Finding]:
    """Yield the findings about one identity."""
    if len(lefts) <= 1 and len(rights) <= 1:
        yield from _pair(identity, lefts[0] if lefts else None, rights[0] if rights else None)
        return
    # Prefer the same entry in both, if the records name entries; otherwise take the first of each.
    entries = {message.entry for message in lefts} == {message.entry for message in rights}
    left, right = _by_entry(lefts, apart=entries), _by_entry(rights, apart=entries)
    for entry in dict.fromkeys([*left, *right]):
        here, there = left.get(entry, []), right.get(entry, [])
        pair = _counterparts(here, there)
        yield from _pair(identity, *pair)
        more = [message for message in here if message is not pair[0]]
        yield from alone("duplicated", identity, more, [message for message in there if message is not pair[1]])


def alone(
    kind: str, identity: str, lefts: Sequence[ComparedMessage], rights: Sequence[ComparedMessage]
) -> Iterator[Finding]:
    """Yield a finding about each message alone."""
    for message in lefts:
        yield Finding(kind, identity, message.sequence, None, "left", text(message.subject), None)
    for message in rights:
        yield Finding(kind, identity, None, message.sequence, "right", None, text(message.subject))


def _counterparts(
    lefts: list[ComparedMessage], rights: list[ComparedMessage]
) -> tuple[ComparedMessage | None, ComparedMessage | None]:
    """Return the first two that are equal; otherwise the first of each."""
    for left in lefts:
        for right in rights:
            if (left.subject, left.block, left.data) == (right.subject, right.block, right.data):
                return left, right
    return (lefts[0] if lefts else None), (rights[0] if rights else None)


def text(value: bytes) -> str:
    """Return bytes as text for a person: bytes that are not UTF-8 as `\\xNN`, and long values cut short."""
    shown = value[:_LONGEST].decode("utf-8", "backslashreplace")
    return shown if len(value) <= _LONGEST else f"{shown}… ({len(value)} bytes)"


def _by_entry(messages: Sequence[ComparedMessage], *, apart: bool) -> dict[bytes, list[ComparedMessage]]:
    grouped: dict[bytes, list[ComparedMessage]] = {}
    for message in messages:
        grouped.setdefault(message.entry if apart else b"", []).append(message)
    return grouped


def _pair(identity: str, left: ComparedMessage | None, right: ComparedMessage | None) -> Iterator[Finding]:
    if left is None:
        assert right is not None
        yield Finding("extra", identity, None, right.sequence, "", None, text(right.subject))
        return
    if right is None:
        yield Finding("missing", identity, left.sequence, None, "", text(left.subject), None)
        return
    place = identity, left.sequence, right.sequence
    if left.subject != right.subject:
        yield Finding("subject", *place, "", text(left.subject), text(right.subject))
    if left.block != right.block:
        yield from _headers(place, left.block, right.block)
    if left.data != right.data:
        yield Finding("payload", *place, "", *_payloads(left.data, right.data))


def _headers(place: tuple[str, int, int], left: bytes, right: bytes) -> Iterator[Finding]:
    """Yield the headers in which two blocks differ; if there are none, the blocks."""
    here, there = _values(left), _values(right)
    names = [name for name in dict.fromkeys([*here, *there]) if here.get(name) != there.get(name)]
    for name in names:
        values = (text(b", ".join(side[name])) if name in side else None for side in (here, there))
        yield Finding("header", *place, text(name), *values)
    if not names:
        yield Finding("header-block", *place, "", text(left), text(right))


def _values(block: bytes) -> dict[bytes, list[bytes]]:
    """Return the values of each header, as servers read a block. The first line is not a header."""
    found: dict[bytes, list[bytes]] = {}
    for line in filter(None, block.split(b"\r\n")[1:]):
        name, _, value = line.partition(b":")
        found.setdefault(name, []).append(value.strip(b" \t"))
    return found


def _payloads(left: bytes, right: bytes) -> tuple[str, str]:
    at = _first_difference(left, right)
    return _payload(left, at), _payload(right, at)


def _payload(data: bytes, at: int) -> str:
    some = data[at : at + _AROUND]
    more = "…" if len(data) > at + _AROUND else ""
    if not some:
        return f"{len(data)} bytes, ends at byte {at}"
    words = some.decode("utf-8", "backslashreplace")
    return f"{len(data)} bytes, at byte {at}: {words if words.isprintable() else f'0x{some.hex()}'}{more}"


def _first_difference(left: bytes, right: bytes) -> int:
    # By halving: whole slices compare much faster than single bytes.
    return bisect_left(range(min(len(left), len(right))), True, key=lambda at: left[: at + 1] != right[: at + 1])
