"""Extracts what is compared of a message: its identity, and subject and header block without expected differences.

Theory of operation: each side reads its messages through a `Reader`, compiled from what is compared (`Comparison`),
which is plain data and travels to tasks. A reader answers with the message's identity, with subject and block as they
are to be compared, and with what was left out, as bits, so that nothing is ignored without being counted.
What a native target and a bridged one differ in by design has an id in docs/known-divergences.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from nats_bridge_spark.diff.provenance import (
    Provenance,
    provenance,
    same_source,
    without_republished_lines,
)
from nats_transforms import copy_id, header_block
from nats_transforms.republish import Republish
from nats_transforms.source_record import HEADER, TWIN_HEADER
from nats_transforms.sourcing import Sourcing

By: TypeAlias = Literal["sequence", "provenance", "provenance:right", "id", "subject"]
"""What identifies two messages as the same one; by subject, the newest of each is compared."""


class State:
    """The role of a message in the comparison."""

    COMPARED: Final = 0
    UNIDENTIFIED: Final = 1
    """Nothing in it identifies it."""
    ELSEWHERE: Final = 2
    """It comes from another stream than the one compared with, or from outside of the range."""
    UNSELECTED: Final = 3
    """The rule does not copy it."""


@dataclass(frozen=True, slots=True)
class Ignored:
    """Something that is not compared: what it is, and the id of the known divergence that explains it, if any."""

    what: str
    divergence: str = ""


RECORD_NAME: Final = Ignored("Nats-Bridge-Source taken for Nats-Stream-Source", "kd/copy/record-name")
IDENTITY: Final = Ignored("the source's identity in the source record (field 6)", "kd/copy/identity")
MESSAGE_ID: Final = Ignored(f"{copy_id.LINE_START.decode()}…", "kd/copy/message-id")
RECORD: Final = Ignored("where a message says that it comes from")
STAYING: Final = Ignored("headers that do not travel with a copy (Nats-Expected-*, Nats-Batch-*, Nats-Request-Info)")
RENAMED: Final = Ignored("headers of counters and schedules under names of ours (Nats-Bridge-Incr)", "kd/copy/renamed")
COUNTED: Final = Ignored("what a counter has of each source (Nats-Counter-Sources)", "kd/copy/counter-record")

ALLOWANCES: Final = (RECORD_NAME, IDENTITY, MESSAGE_ID, RECORD, STAYING, RENAMED, COUNTED)
"""What can be ignored without being named by the user; the bits of `Read.ignored` in this order, then the names."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The two sides of a comparison, and how they are compared.

    Attributes:
        by: how messages are identified.
        bridged: whether what a native copy and a bridged one differ in by design is left out.
        ignored_headers: names of headers that are not compared, on both sides; case counts, as on the server.
        source: with `provenance:right`, the stream of which the right side holds copies.
        first: with `provenance:right`, the lowest sequence of the left side's range.
        last: the highest one; None for no bound.
        rule: what makes the copies of the left side's messages; None where left and right are alike.
    """

    by: By
    bridged: bool = False
    ignored_headers: tuple[bytes, ...] = ()
    source: bytes = b""
    first: int = 0
    last: int | None = None
    rule: Sourcing | Republish | None = field(default=None)


Read: TypeAlias = tuple[int, bytes, int, bytes, bytes | None, bytes | None, int]
"""State, source or id, number, entry, subject and block as they are compared (None: as they are), ignored as bits."""

Reader: TypeAlias = Callable[[int, bytes, bytes], Read]
"""From sequence, subject and header block."""


def ignored_of(comparison: Comparison) -> tuple[Ignored, ...]:
    """The meaning of the bits of `Read.ignored`."""
    return (*ALLOWANCES, *(Ignored(f"header {name.decode('utf-8', 'replace')}") for name in comparison.ignored_headers))


def bits_of(comparison: Comparison) -> tuple[int, ...]:
    """The bits of `Read.ignored` that this comparison can set."""
    kinds: tuple[Ignored, ...] = (MESSAGE_ID, RENAMED, COUNTED) if comparison.bridged else ()
    if is_unrecorded(comparison):
        kinds += (RECORD,) if comparison.rule and comparison.by != "subject" else (RECORD, STAYING)
    elif comparison.bridged:
        kinds += (RECORD_NAME, IDENTITY)
    named = range(len(ALLOWANCES), len(ALLOWANCES) + len(comparison.ignored_headers))
    return (*sorted(ALLOWANCES.index(kind) for kind in kinds), *named)


def is_unrecorded(comparison: Comparison) -> bool:
    """Whether copies are compared with what they are copies of, so that source records are left out."""
    rule = comparison.rule
    copied = comparison.by == "provenance:right" and not (isinstance(rule, Sourcing) and not rule.mirrors)
    return copied or comparison.by == "subject"


def is_plain(comparison: Comparison) -> bool:
    """Whether messages are compared as they are, and by sequence: nothing of them has to be read."""
    return (
        comparison.by == "sequence"
        and not comparison.bridged
        and not comparison.ignored_headers
        and comparison.rule is None
    )


def reader(comparison: Comparison, *, right: bool) -> Reader:
    """Return the reader of a side's messages."""
    identify = _identification(comparison, right=right)
    compared = _comparable(comparison, right=right)
    rule = None if right else comparison.rule
    by_subject = comparison.by == "subject"

    def read(sequence: int, subject: bytes, block: bytes) -> Read:
        state, source, number, entry = identify(sequence, block)
        if state != State.COMPARED:
            return state, source, number, entry, None, None, 0
        if rule is None:
            changed, ignored = compared(block)
            source = subject if by_subject else source
            return state, source, number, entry, None, None if changed is block else changed, ignored
        copied = rule.destination(subject)
        if copied is None or (rule.where is not None and not rule.where.holds(block)):
            return State.UNSELECTED, source, number, entry, None, None, 0
        if isinstance(rule, Sourcing) and not rule.mirrors:
            block = rule.block(block, rule.record(sequence, subject))
        elif isinstance(rule, Sourcing):
            block = rule.bare(block)
        changed, ignored = compared(block)
        return state, copied if by_subject else source, number, entry, copied, changed, ignored

    return read


_Identity: TypeAlias = tuple[int, bytes, int, bytes]


def _identification(comparison: Comparison, *, right: bool) -> Callable[[int, bytes], _Identity]:
    def by_sequence(sequence: int, _: bytes) -> _Identity:
        return State.COMPARED, b"", sequence, b""

    def by_id(_: int, block: bytes) -> _Identity:
        found = header_block.read(block, b"Nats-Msg-Id")
        return (State.COMPARED, found, 0, b"") if found else (State.UNIDENTIFIED, b"", 0, b"")

    def by_provenance(_: int, block: bytes) -> _Identity:
        found = provenance(block)
        if found is None:
            return State.UNIDENTIFIED, b"", 0, b""
        return State.COMPARED, found.source, found.sequence, found.entry

    def by_source(_: int, block: bytes) -> _Identity:
        found = provenance(block)
        if found is None:
            return State.UNIDENTIFIED, b"", 0, b""
        state = State.COMPARED if _is_meant(comparison, found) else State.ELSEWHERE
        return state, b"", found.sequence, found.entry

    if comparison.by == "sequence" or (comparison.by == "provenance:right" and not right):
        return by_sequence
    if comparison.by == "id":
        return by_id
    if comparison.by == "subject":
        return lambda *_: (State.COMPARED, b"", 0, b"")
    return by_source if comparison.by == "provenance:right" else by_provenance


def _is_meant(comparison: Comparison, found: Provenance) -> bool:
    last = comparison.last
    return (
        same_source(found.source, comparison.source)
        and found.sequence >= comparison.first
        and (last is None or found.sequence <= last)
    )


_Change: TypeAlias = Callable[[bytes], bytes]


def _comparable(comparison: Comparison, *, right: bool) -> Callable[[bytes], tuple[bytes, int]]:
    """A function that gives a block as it is compared, and what was left out of it."""
    changes: list[tuple[int, bytes, _Change]] = []  # bit, what a block must hold for it, change

    def change(what: Ignored, mark: bytes, made: _Change) -> None:
        changes.append((1 << ALLOWANCES.index(what), mark, made))

    rule = comparison.rule
    unrecorded = is_unrecorded(comparison)
    if unrecorded:
        if right:
            change(RECORD, b"\nNats-Stream: ", without_republished_lines)
        change(RECORD, b"-Source:", _without_record)
        if comparison.by == "subject" or (not right and rule is None):
            for prefix in _STAYING:
                change(STAYING, b"\n" + prefix, _prefix_remover(prefix))
    elif comparison.bridged:
        change(RECORD_NAME, b"\n" + TWIN_HEADER + b":", _renamer(TWIN_HEADER))
        change(IDENTITY, b"\nNats-Stream-Source:", _without_identity)
    if comparison.bridged:
        change(MESSAGE_ID, copy_id.IN_BLOCK, copy_id.without_copy_id)
        change(RENAMED, b"\nNats-Bridge-", _with_own_names)
        change(COUNTED, b"-Counter-Sources:", _without_counts)
    for at, name in enumerate(comparison.ignored_headers, len(ALLOWANCES)):
        changes.append((1 << at, b"\n" + name + b":", _remover(name)))

    def compared(block: bytes) -> tuple[bytes, int]:
        ignored = 0
        for bit, mark, made in changes:
            if mark in block:
                changed = made(block)
                if changed != block:
                    block, ignored = changed, ignored | bit
        # A block without headers and none at all become the same copy.
        return b"" if unrecorded and block == _EMPTY else block, ignored

    return compared


_EMPTY: Final = header_block.START + b"\r\n"
_STAYING: Final = (b"Nats-Expected-", b"Nats-Batch-", b"Nats-Request-Info:")
_COUNTS: Final = (b"Nats-Counter-Sources", b"Nats-Bridge-Counter-Sources")
_RENAMED: Final = re.compile(rb"(?<=\nNats-)Bridge-(?=Incr:|Schedule)")
_SIXTH_FIELD: Final = re.compile(rb"(\nNats-Stream-Source:[ \t]*[^ \r\n]+(?: [^ \r\n]+){4}) [^ \r\n]+(?=\r\n)")


def _remover(name: bytes) -> _Change:
    return lambda block: header_block.remove(block, name)


def _prefix_remover(prefix: bytes) -> _Change:
    return lambda block: header_block.remove_prefix(block, prefix)


def _renamer(name: bytes) -> _Change:
    return lambda block: block.replace(b"\n" + name + b":", b"\n" + HEADER + b":")


def _with_own_names(block: bytes) -> bytes:
    return _RENAMED.sub(b"", block)


def _without_counts(block: bytes) -> bytes:
    for name in _COUNTS:
        block = header_block.remove(block, name)
    return block


def _without_identity(block: bytes) -> bytes:
    return _SIXTH_FIELD.sub(rb"\1", block, 1)


def _without_record(block: bytes) -> bytes:
    for name in (HEADER, TWIN_HEADER):
        block = header_block.remove(block, name)
    return block
