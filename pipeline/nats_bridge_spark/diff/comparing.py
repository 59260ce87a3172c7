"""Extracts the compared parts of a message: its identity, and subject and header block without expected differences.

Theory of operation: each side reads its messages through a `Reader`, compiled from a `Comparison`, which is plain data
and is sent to tasks. A reader returns the message's identity, the subject and block to compare, and bits for the parts
that were left out, so nothing is ignored without being counted. Differences by design between a native target and a
bridged one have an id in docs/known-divergences.md.

Usual copies are read in a third of the time (`quick_reader`), with the same results. The block of a usual copy ends in
the source record, perhaps after an id of the bridge, and one regular expression splits it.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final, Literal, TypeAlias

from nats_bridge_spark.diff.provenance import provenance, same_source, without_republished_lines
from nats_transforms import copy_id, header_block
from nats_transforms.republish import Republish
from nats_transforms.source_record import HEADER, TWIN_HEADER
from nats_transforms.sourcing import Sourcing

By: TypeAlias = Literal["auto", "sequence", "provenance", "provenance:right", "id", "subject"]
"""The identity by which messages are joined: `auto` until it is decided. By subject, only the newest of each is
compared."""


class State:
    """The role of a message in the comparison."""

    COMPARED: Final = 0
    UNIDENTIFIED: Final = 1  # nothing in it identifies it
    LEFT_OUT: Final = 2  # the rule does not copy it, or it comes from another stream or from outside the range


@dataclass(frozen=True, slots=True)
class Ignored:
    """Something that is not compared: its name, and the id of the known divergence that explains it, if any."""

    what: str
    divergence: str = ""


_RECORD_NAME: Final = Ignored("Nats-Bridge-Source taken for Nats-Stream-Source", "kd/copy/record-name")
_IDENTITY: Final = Ignored("the source's identity in the source record (field 6)", "kd/copy/identity")
_MESSAGE_ID: Final = Ignored(f"{copy_id.LINE_START.decode()}…", "kd/copy/message-id")
_RECORD: Final = Ignored("where a message says that it comes from")
_STAYING: Final = Ignored("headers that do not travel with a copy (Nats-Expected-*, Nats-Batch-*, Nats-Request-Info)")
_RENAMED: Final = Ignored("renamed headers of counters and schedules (Nats-Bridge-Incr)", "kd/copy/renamed")
_COUNTED: Final = Ignored("what a counter has of each source (Nats-Counter-Sources)", "kd/copy/counter-record")


@dataclass(frozen=True, slots=True)
class Comparison:
    """The two sides of a comparison, and how they are compared.

    Attributes:
        ignored_headers: names of headers that are not compared on both sides; case-sensitive, as on the server.
        source: with `provenance:right`, the stream that the right side has copies of; empty until it is decided for
            the left side's name.
        first: with `provenance:right`, the lowest sequence of the left side's range.
        rule: the rule or transform that makes copies of the left side's messages; None if both sides have the same
            form.
    """

    by: By = "auto"
    ignored_headers: tuple[bytes, ...] = ()
    source: bytes = b""
    first: int = 0
    last: int | None = None
    rule: Sourcing | Republish | None = None

    @property
    def is_unrecorded(self) -> bool:
        """Whether copies are compared with their originals, so that source records are left out."""
        records = isinstance(self.rule, Sourcing) and not self.rule.mirrors
        return self.by == "subject" or (self.by == "provenance:right" and not records)

    @property
    def ignored(self) -> tuple[Ignored, ...]:
        """The possible omissions from messages, in the order of the bits of `Read`."""
        every = [what for right in (False, True) for what, _, _ in _changes(self, right=right)]
        return tuple(dict.fromkeys(every))


Read: TypeAlias = tuple[int, bytes, int, bytes, bytes | None, bytes | None, int]
"""State, source or id, number, entry, subject and block as they are compared (None: as they are), ignored as bits."""

_Change: TypeAlias = Callable[[bytes], bytes]

Reader: TypeAlias = Callable[[int, bytes, bytes], Read]
"""From sequence, subject and header block."""


def reader(comparison: Comparison, *, right: bool) -> Reader:
    """Return the reader of a side's messages."""
    identify = _identification(comparison, right=right)
    every, unrecorded = comparison.ignored, comparison.is_unrecorded
    changes = [(1 << every.index(what), mark, change) for what, mark, change in _changes(comparison, right=right)]
    rule = None if right else comparison.rule
    by_subject = comparison.by == "subject"

    def compared(block: bytes) -> tuple[bytes, int]:
        ignored = 0
        for bit, mark, change in changes:
            if mark in block:
                changed = change(block)
                if changed != block:
                    block, ignored = changed, ignored | bit
        # A block without headers and none at all become the same copy.
        return b"" if unrecorded and block == _EMPTY else block, ignored

    def read(sequence: int, subject: bytes, block: bytes) -> Read:
        state, source, number, entry = identify(sequence, block)
        if state != State.COMPARED:
            return state, source, number, entry, None, None, 0
        copied, copy = None, block
        if rule is not None:
            copied = rule.destination(subject)
            if copied is None or (rule.where is not None and not rule.where.holds(block)):
                return State.LEFT_OUT, source, number, entry, None, None, 0
            if isinstance(rule, Sourcing):
                copy = rule.bare(block) if rule.mirrors else rule.block(block, rule.record(sequence, subject))
        if by_subject:
            source = subject if copied is None else copied
        changed, ignored = compared(copy)
        return state, source, number, entry, copied, None if changed is block else changed, ignored

    return read


_Identity: TypeAlias = tuple[int, bytes, int, bytes]
_UNIDENTIFIED: Final[_Identity] = (State.UNIDENTIFIED, b"", 0, b"")


def _identification(comparison: Comparison, *, right: bool) -> Callable[[int, bytes], _Identity]:
    by, source = comparison.by, comparison.source
    first, last = comparison.first, comparison.last
    if by == "sequence" or (by == "provenance:right" and not right):
        return lambda sequence, _: (State.COMPARED, b"", sequence, b"")
    if by == "subject":
        return lambda *_: (State.COMPARED, b"", 0, b"")

    def by_id(_: int, block: bytes) -> _Identity:
        found = header_block.read(block, b"Nats-Msg-Id")
        return (State.COMPARED, found, 0, b"") if found else _UNIDENTIFIED

    def by_provenance(_: int, block: bytes) -> _Identity:
        found = provenance(block)
        if found is None:
            return _UNIDENTIFIED
        if by == "provenance":
            return State.COMPARED, found.source, found.sequence, found.entry
        is_meant = first <= found.sequence and (last is None or found.sequence <= last)
        state = State.COMPARED if is_meant and same_source(found.source, source) else State.LEFT_OUT
        return state, b"", found.sequence, found.entry

    return by_id if by == "id" else by_provenance


def _changes(comparison: Comparison, *, right: bool) -> list[tuple[Ignored, bytes, _Change]]:
    """Return the omissions from a side's blocks, each with bytes in every block that has it, and what removes it."""
    found: list[tuple[Ignored, bytes, _Change]] = []
    by, rule = comparison.by, comparison.rule
    if comparison.is_unrecorded:
        if right:
            found.append((_RECORD, b"\nNats-Stream: ", without_republished_lines))
        found.append((_RECORD, b"-Source:", _remover(HEADER, TWIN_HEADER)))
        if by == "subject" or (not right and rule is None):
            drop = header_block.remove_prefix
            found += [(_STAYING, b"\n" + prefix, partial(drop, prefix=prefix)) for prefix in _PREFIXES]
    elif by.startswith("provenance"):
        found.append((_RECORD_NAME, _TWIN, lambda block: block.replace(_TWIN, b"\n" + HEADER + b":")))
        found.append((_IDENTITY, b"\nNats-Stream-Source:", partial(_SIXTH_FIELD.sub, rb"\1", count=1)))
    if by not in ("sequence", "id"):
        found.append((_MESSAGE_ID, copy_id.IN_BLOCK, copy_id.without_copy_id))
        found.append((_RENAMED, b"\nNats-Bridge-", partial(_OWN_NAME.sub, b"")))
        found.append(
            (_COUNTED, b"-Counter-Sources:", _remover(b"Nats-Counter-Sources", b"Nats-Bridge-Counter-Sources"))
        )
    for name in comparison.ignored_headers:
        what = Ignored(f"header {name.decode('utf-8', 'replace')}")
        found.append((what, b"\n" + name + b":", _remover(name)))
    return found


_TWIN: Final = b"\n" + TWIN_HEADER + b":"
_EMPTY: Final = header_block.START + b"\r\n"
_PREFIXES: Final = (b"Nats-Expected-", b"Nats-Batch-", b"Nats-Request-Info:")
_OWN_NAME: Final = re.compile(rb"(?<=\nNats-)Bridge-(?=Incr:|Schedule)")
_SIXTH_FIELD: Final = re.compile(rb"(\nNats-Stream-Source:[ \t]*[^ \r\n]+(?: [^ \r\n]+){4}) [^ \r\n]+(?=\r\n)")


def _remover(*names: bytes) -> _Change:
    def without(block: bytes) -> bytes:
        for name in names:
            block = header_block.remove(block, name)
        return block

    return without


_MARK: Final = b"-Source: "
_BEFORE: Final = len(b"\r\nNats-Stream")
_USUAL: Final = re.compile(
    rb"\r\nNats-(Stream|Bridge)-Source: ([^ \t\r\n]+) ([0-9]{1,18}) ([^ \t\r\n]+ [^ \t\r\n]+)"
    rb"(?: ([^ \t\r\n]+)( [^ \t\r\n]+)?)?\r\n\r\n\Z"
)
_OWN: Final = re.compile(copy_id.line_pattern())


def quick_reader(comparison: Comparison, *, right: bool) -> Reader:
    """Return the reader of a side's messages, with a fast path for usual copies."""
    one = reader(comparison, right=right)
    by_copy, unrecorded = comparison.by == "provenance:right", comparison.is_unrecorded
    has_originals = not right and (by_copy or comparison.rule is not None)
    if not comparison.by.startswith("provenance") or has_originals:
        return one
    bit = {what: 1 << at for at, what in enumerate(comparison.ignored)}
    identity, message_id, record = (bit.get(what, 0) for what in (_IDENTITY, _MESSAGE_ID, _RECORD))
    renamed = {b"Bridge": bit.get(_RECORD_NAME, 0), b"Stream": 0}
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
        own = line > 1 and block.startswith(copy_id.LINE_START, line) and own_id(block, line, begin) is not None
        head = block[:line] if own else block[: begin + 2]
        if (b"\nNats-" in head and not _has_only_an_id(head, own)) or (marks and any(mark in block for mark in marks)):
            return one(sequence, subject, block)
        number = int(digits)
        bits = message_id if own else 0
        if by_copy:
            if not is_meant(source) or not first <= number <= last:
                return State.LEFT_OUT, b"", number, entry, None, None, 0
            source = b""
        if unrecorded:
            rest = b"" if head == header_block.START else head + b"\r\n"
            return State.COMPARED, b"", number, entry, None, rest, bits | record
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
    return not own and head.count(b"\nNats-") == 1 and b"\nNats-Msg-Id: " in head and copy_id.IN_BLOCK not in head
