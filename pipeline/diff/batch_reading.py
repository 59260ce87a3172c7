"""Reads many messages at once, with the same results as `comparing`, in a quarter of the time for usual copies.

A usual copy's block ends in the source record, perhaps with an id of ours before it, and one regular expression takes
it apart. Whatever looks otherwise goes to the reader that `comparing` makes; a test holds the two together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from nats_bridge.pipeline.diff.comparing import (
    ALLOWANCES,
    IDENTITY,
    MESSAGE_ID,
    RECORD,
    RECORD_NAME,
    REPAIRED,
    Comparison,
    Read,
    Reader,
    State,
    reader,
)
from nats_bridge.pipeline.diff.provenance import same_source
from nats_bridge.transforms.header_block import START

_MARK: Final = b"-Source: "
_BEFORE: Final = len(b"\r\nNats-Stream")
_USUAL: Final = re.compile(
    rb"\r\nNats-(Stream|Bridge|Repair)-Source: ([^ \t\r\n]+) ([0-9]{1,18}) ([^ \t\r\n]+ [^ \t\r\n]+)"
    rb"(?: ([^ \t\r\n]+)( [^ \t\r\n]+)?)?\r\n\r\n\Z"
)
_OWN: Final = re.compile(rb"Nats-Msg-Id: bridge-[0-9a-f]{12}-[0-9]{1,20}-[0-9]{1,20}")
_ID: Final = b"Nats-Msg-Id: bridge-"
_OURS: Final = b"\n" + _ID


@dataclass(frozen=True, slots=True)
class Columns:
    """`comparing.Read` for many messages, by column; `subjects` is None where they are as they were."""

    states: list[int]
    sources: list[bytes]
    numbers: list[int]
    entries: list[bytes]
    subjects: list[bytes | None] | None
    blocks: list[bytes | None]
    ignored: list[int]


BatchReader: TypeAlias = Callable[[Sequence[int], Sequence[bytes], Sequence[bytes]], Columns]
"""From sequences, subjects and header blocks."""


def batch_reader(comparison: Comparison, *, right: bool) -> BatchReader:
    """Return the reader of a side's messages, many at once."""
    one = reader(comparison, right=right)
    has_records = comparison.by == "provenance" or (comparison.by == "provenance:right" and right)
    if has_records and comparison.rule is None and comparison.bridged:
        return _quick(comparison, one)

    def read(sequences: Sequence[int], subjects: Sequence[bytes], blocks: Sequence[bytes]) -> Columns:
        return _columns([one(*each) for each in zip(sequences, subjects, blocks, strict=True)])

    return read


def _columns(found: list[Read]) -> Columns:
    if not found:
        return Columns([], [], [], [], None, [], [])
    states, sources, numbers, entries, subjects, blocks, ignored = (list(each) for each in zip(*found, strict=True))
    return Columns(states, sources, numbers, entries, subjects, blocks, ignored)


def _quick(comparison: Comparison, one: Reader) -> BatchReader:
    copied = comparison.by == "provenance:right"
    bit = {what: 1 << at for at, what in enumerate(ALLOWANCES)}
    identity, message_id, record = bit[IDENTITY], bit[MESSAGE_ID], bit[RECORD]
    renamed = {b"Bridge": bit[RECORD_NAME], b"Repair": bit[REPAIRED], b"Stream": 0}
    marks = tuple(b"\n" + header + b":" for header in comparison.ignored_headers)
    match, own_id = _USUAL.match, _OWN.fullmatch
    last = comparison.last if comparison.last is not None else 1 << 64

    def read(sequences: Sequence[int], subjects: Sequence[bytes], blocks: Sequence[bytes]) -> Columns:
        states: list[int] = []
        sources: list[bytes] = []
        numbers: list[int] = []
        entries: list[bytes] = []
        changed: list[bytes | None] = []
        ignored: list[int] = []
        meant: dict[bytes, bool] = {}
        for at, block in enumerate(blocks):
            begin = block.rfind(_MARK) - _BEFORE
            found = match(block, begin) if begin > 0 else None
            if found is not None:
                kind, source, number, entry, subject, extra = found.groups()
                line = block.rfind(b"\r\n", 0, begin) + 2
                own = line > 1 and block.startswith(_ID, line) and own_id(block, line, begin) is not None
                head = block[:line] if own else block[: begin + 2]
                if (b"\nNats-" not in head or _only_an_id(head, own)) and not (
                    marks and any(mark in block for mark in marks)
                ):
                    shown = int(number)
                    state, bits, made = 0, message_id if own else 0, None
                    if copied:
                        if source not in meant:
                            meant[source] = same_source(source, comparison.source)
                        if meant[source] and comparison.first <= shown <= last:
                            made = b"" if head == START else head + b"\r\n"
                            bits |= record
                        else:
                            state, bits = State.ELSEWHERE, 0
                        source = b""
                    else:
                        bits |= renamed[kind]
                        if extra:
                            bits |= identity
                        if bits:
                            end = found.end(5) if subject else found.end(4)
                            made = b"%bNats-Stream-Source: %b\r\n\r\n" % (head, block[found.start(2) : end])
                    states.append(state)
                    sources.append(source)
                    numbers.append(shown)
                    entries.append(entry)
                    changed.append(made)
                    ignored.append(bits)
                    continue
            state, source, shown, entry, _, made, bits = one(sequences[at], subjects[at], block)
            states.append(state)
            sources.append(source)
            numbers.append(shown)
            entries.append(entry)
            changed.append(made)
            ignored.append(bits)
        return Columns(states, sources, numbers, entries, None, changed, ignored)

    return read


def _only_an_id(head: bytes, own: bool) -> bool:
    """Whether the one header of a server before the record is a publisher's message id."""
    return not own and head.count(b"\nNats-") == 1 and b"\nNats-Msg-Id: " in head and _OURS not in head
