"""Finds the differences of odd identities in their full messages, and messages out of order; counts them with examples.

Theory of operation. Usually an identity has one message on either side, and the two are compared field by field. If
there are more, copies by the same entry belong together, because two entries may copy one message on purpose. Of the
copies by one entry, one counts (one that equals its counterpart, if any), and all others are duplicates.

Messages of different sources (or entries of a rule) have no order among each other, so each such group is compared
alone: in the order of the right, a message is out of order if a higher sequence of the left comes before it.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice, pairwise, product
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from nats_bridge_spark.diff.comparing import Comparison, State
from nats_bridge_spark.diff.matching import KEYS, read
from nats_bridge_spark.diff.rows import Batches, Rows

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
    [(name, pa.int64() if name.endswith("_sequence") else pa.string()) for name in Finding._fields]
)
"""The columns of the result."""


def found(identity: str, lefts: Sequence[ComparedMessage], rights: Sequence[ComparedMessage]) -> Iterator[Finding]:
    """Yield the findings about one identity."""
    # Prefer the same entry in both, if the records name entries; otherwise take the first of each.
    entries = {message.entry for message in lefts} == {message.entry for message in rights}
    groups: dict[bytes, tuple[list[ComparedMessage], list[ComparedMessage]]] = {}
    for side, messages in enumerate((lefts, rights)):
        for message in messages:
            groups.setdefault(message.entry if entries else b"", ([], []))[side].append(message)
    for here, there in groups.values():
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
    for left, right in product(lefts, rights):
        if (left.subject, left.block, left.data) == (right.subject, right.block, right.data):
            return left, right
    return next(iter(lefts), None), next(iter(rights), None)


def text(value: bytes) -> str:
    """Return bytes as text for a person: bytes that are not UTF-8 as `\\xNN`, and long values cut short."""
    shown = value[:_LONGEST].decode("utf-8", "backslashreplace")
    return shown if len(value) <= _LONGEST else f"{shown}… ({len(value)} bytes)"


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
        at = _first_difference(left.data, right.data)
        yield Finding("payload", *place, "", _payload(left.data, at), _payload(right.data, at))


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


_AT_ONCE: Final = 500  # findings in a batch
_EXAMPLES: Final = 3  # findings of each kind that are shown
_HEADERS: Final = 20  # the most frequent ones that are reported
_SEQUENCE: Final = pa.schema([("sequence", pa.int64())])
_ORDER: Final = (*KEYS, "state", "left", "right")
_MESSAGE: Final = ("entry", "subject", "block", "data")


def odd_findings(left: Rows, right: Rows, matches: Rows, comparison: Comparison, *, several: bool) -> Rows:
    """Return findings about the odd identities, with columns `FINDINGS`.

    The sequences of both sides are known by identity, so the messages are fetched by a join on sequence. If an identity
    has several messages on a side, only the lowest sequence is known, and the others are searched again.
    """
    messages = []
    for rows, name, is_right in ((left, "left", False), (right, "right", True)):
        wanted = sequences_in(matches.where("odd"), name)
        if several:
            all_of = read(rows, comparison, right=is_right).selected(*KEYS, name)
            wanted = wanted.united(sequences_in(all_of.having(matches.where("several"), KEYS), name)).kept()
        full = read(rows.having(wanted, ["sequence"]), comparison, right=is_right)
        messages.append(full.selected(*_ORDER, *_MESSAGE))
    return messages[0].united(messages[1]).together(KEYS, _ORDER).mapped(partial(_in_batches, _found_in), FINDINGS)


def sequences_in(rows: Rows, column: str) -> Rows:
    """Return the sequences in a column, as the only column `sequence`."""

    def picked(batches: Batches) -> Batches:
        for batch in batches:
            yield pa.RecordBatch.from_arrays([batch.column(column).drop_null()], schema=_SEQUENCE)

    return rows.mapped(picked, _SEQUENCE)


def _in_batches(find: Callable[[Batches], Iterator[Finding]], batches: Batches) -> Batches:
    findings = find(batches)
    while some := list(islice(findings, _AT_ONCE)):
        yield pa.RecordBatch.from_arrays(list(map(pa.array, zip(*some, strict=True), FINDINGS.types)), schema=FINDINGS)


def _found_in(batches: Batches) -> Iterator[Finding]:
    rows = (row for batch in batches for row in batch.to_pylist())
    for (source, number, state), group in groupby(rows, itemgetter(*KEYS, "state")):
        lefts: list[ComparedMessage] = []
        rights: list[ComparedMessage] = []
        for row in group:
            side, sequence = (lefts, row["left"]) if row["right"] is None else (rights, row["right"])
            side.append(ComparedMessage(sequence, *(row[name] or b"" for name in _MESSAGE)))
        if state == State.UNIDENTIFIED:
            yield from alone("unidentified", "", lefts, rights)
        else:
            yield from found(identity(source, number), lefts, rights)


def identity(source: bytes, number: int) -> str:
    """Return an identity as text: source and sequence, or the only part that it has."""
    return f"{text(source)} {number}" if source and number else text(source) or str(number)


def overview_of(findings: Rows) -> tuple[dict[str, int], dict[str, int], dict[str, list[Finding]]]:
    """Count findings, and keep the first ones.

    Returns:
        How many there are of each kind, in the order of `KINDS`; the headers that differ most often; and
        the first ones of each kind, by sequence.
    """
    of_fields = findings.selected("kind", "field", "identity").grouped(["kind", "field"], [("identity", "count")])
    rows = of_fields.table().sort_by([("identity_count", "descending"), ("field", "ascending")]).to_pylist()
    number = {kind: sum(row["identity_count"] for row in rows if row["kind"] == kind) for kind in KINDS}
    headers = {row["field"]: row["identity_count"] for row in rows if row["kind"] == "header"}
    of_parts = findings.mapped(partial(_in_batches, _first_ones), FINDINGS).table()
    examples: dict[str, list[Finding]] = {}
    for each in _first_ones(iter(of_parts.to_batches())):
        examples.setdefault(each.kind, []).append(each)
    return {kind: number[kind] for kind in examples}, dict(islice(headers.items(), _HEADERS)), examples


def _first_ones(batches: Batches) -> Iterator[Finding]:
    """Return the first findings of each kind, in the order of `KINDS`."""
    first: list[Finding] = []
    for batch in batches:
        first += map(Finding._make, zip(*batch.to_pydict().values(), strict=True))
        first.sort(key=_place)
        first = [each for kind in KINDS for each in [one for one in first if one.kind == kind][:_EXAMPLES]]
    return iter(first)


def _place(finding: Finding) -> tuple[int, str, int]:
    sequence = finding.right_sequence if finding.left_sequence is None else finding.left_sequence
    return sequence or 0, finding.field, finding.right_sequence or 0


def order_findings(matches: Rows) -> Rows:
    """Return findings about the messages that are out of order, with columns `FINDINGS`.

    Args:
        matches: see `matching.matched`; of messages that a side has several times, the first ones count.
    """
    pairs = matches.where("common").selected(*KEYS, "group", "left", "right")
    return pairs.together(["group"], ["group", "right"]).mapped(partial(_in_batches, _overtaken), FINDINGS)


def _overtaken(batches: Batches) -> Iterator[Finding]:
    last, highest = None, 0
    for batch in filter(len, batches):
        groups, lefts = batch.column("group").to_numpy(), batch.column("left").to_numpy()
        starts = [0, *(np.flatnonzero(np.diff(groups)) + 1), len(groups)]
        overtaken = np.zeros(len(groups), np.bool_)
        for start, end in pairwise(starts):
            before = [highest if groups[start] == last else lefts[start]]
            reached = np.maximum.accumulate(np.concatenate([before, lefts[start:end]]))
            overtaken[start:end] = lefts[start:end] < reached[:-1]
            last, highest = groups[start], reached[-1]
        for row in batch.filter(pa.array(overtaken)).to_pylist():
            yield Finding("order", identity(row["source"], row["number"]), row["left"], row["right"])
