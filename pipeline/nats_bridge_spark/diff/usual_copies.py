"""Reads usual copies in a third of the time that `comparing` takes, with the same results.

The block of a usual copy ends in the source record, perhaps after an id of the bridge, and one regular expression
splits it. All others go to the reader that `comparing` makes; a test compares the two.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from nats_bridge_spark.diff.comparing import (
    IDENTITY,
    MESSAGE_ID,
    RECORD,
    RECORD_NAME,
    Comparison,
    Read,
    Reader,
    State,
    reader,
)
from nats_bridge_spark.diff.provenance import same_source
from nats_transforms.copy_id import IN_BLOCK, LINE_START, line_pattern
from nats_transforms.header_block import START

_MARK: Final = b"-Source: "
_BEFORE: Final = len(b"\r\nNats-Stream")
_USUAL: Final = re.compile(
    rb"\r\nNats-(Stream|Bridge)-Source: ([^ \t\r\n]+) ([0-9]{1,18}) ([^ \t\r\n]+ [^ \t\r\n]+)"
    rb"(?: ([^ \t\r\n]+)( [^ \t\r\n]+)?)?\r\n\r\n\Z"
)
_OWN: Final = re.compile(line_pattern())


def quick_reader(comparison: Comparison, *, right: bool) -> Reader:
    """Return the reader of a side's messages: that of `comparing`, with a fast path for usual copies."""
    one = reader(comparison, right=right)
    has_records = comparison.by == "provenance" or (comparison.by == "provenance:right" and right)
    if not has_records or comparison.rule is not None:
        return one
    copied = comparison.by == "provenance:right"
    bit = {what: 1 << at for at, what in enumerate(comparison.ignored)}
    identity, message_id, record = (bit.get(what, 0) for what in (IDENTITY, MESSAGE_ID, RECORD))
    renamed = {b"Bridge": bit.get(RECORD_NAME, 0), b"Stream": 0}
    marks = tuple(b"\n" + header + b":" for header in comparison.ignored_headers)
    match, own_id = _USUAL.match, _OWN.fullmatch
    first, last = comparison.first, comparison.last if comparison.last is not None else 1 << 64
    is_meant = lru_cache(maxsize=64)(lambda source: same_source(source, comparison.source))

    def read(sequence: int, subject: bytes, block: bytes) -> Read:
        begin = block.rfind(_MARK) - _BEFORE
        found = match(block, begin) if begin > 0 else None
        if found is None:
            return one(sequence, subject, block)
        kind, source, digits, entry, of, extra = found.groups()
        line = block.rfind(b"\r\n", 0, begin) + 2
        own = line > 1 and block.startswith(LINE_START, line) and own_id(block, line, begin) is not None
        head = block[:line] if own else block[: begin + 2]
        if (b"\nNats-" in head and not _has_only_an_id(head, own)) or (marks and any(mark in block for mark in marks)):
            return one(sequence, subject, block)
        number = int(digits)
        bits = message_id if own else 0
        if copied:
            if not is_meant(source) or not first <= number <= last:
                return State.LEFT_OUT, b"", number, entry, None, None, 0
            return State.COMPARED, b"", number, entry, None, b"" if head == START else head + b"\r\n", bits | record
        bits |= renamed[kind]
        if extra:
            bits |= identity
        made = None
        if bits:
            end = found.end(5) if of else found.end(4)
            made = b"%bNats-Stream-Source: %b\r\n\r\n" % (head, block[found.start(2) : end])
        return State.COMPARED, source, number, entry, None, made, bits

    return read


def _has_only_an_id(head: bytes, own: bool) -> bool:
    return not own and head.count(b"\nNats-") == 1 and b"\nNats-Msg-Id: " in head and IN_BLOCK not in head
