"""Finds the differences of odd identities in their full messages, and messages out of order; counts them with examples.

Messages of different sources (or entries of a rule) have no order among each other, so each such group is compared
alone: in the order of the right, a message is out of order if a higher sequence of the left comes before it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby, islice, pairwise
from operator import itemgetter
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from nats_bridge_spark.diff.comparing import Comparison, State
from nats_bridge_spark.diff.findings import FINDINGS, KINDS, ComparedMessage, Finding, alone, found, text
from nats_bridge_spark.diff.matching import KEYS, read
from nats_bridge_spark.diff.rows import Batches, Rows

_AT_ONCE: Final = 500  # findings in a batch
_EXAMPLES: Final = 3  # findings of each kind that are shown
_HEADERS: Final = 20  # the most frequent ones that are reported
_SEQUENCE: Final = pa.schema([("sequence", pa.int64())])
_MESSAGE: Final = ("entry", "subject", "block", "data")
_ORDER: Final = (*KEYS, "state", "left", "right")


def odd_findings(left: Rows, right: Rows, matches: Rows, comparison: Comparison, *, several: bool) -> Rows:
    """Return findings about the odd identities, with columns `FINDINGS`.

    The sequences of both sides are known by identity, so the messages are fetched by a join on sequence. If an identity
    has several messages on a side, only the lowest sequence is known, and the others are searched again.
    """
    messages = []
    for rows, name, is_right in ((left, "left", False), (right, "right", True)):
        pick = partial(_sequences, name)
        wanted = matches.where("odd").mapped(pick, _SEQUENCE)
        if several:
            all_of = read(rows, comparison, right=is_right).selected(*KEYS, name)
            wanted = wanted.united(all_of.having(matches.where("several"), KEYS).mapped(pick, _SEQUENCE)).kept()
        full = read(rows.having(wanted, ["sequence"]), comparison, right=is_right)
        messages.append(full.selected(*KEYS, "state", "left", "right", *_MESSAGE))
    return messages[0].united(messages[1]).together(KEYS, _ORDER).mapped(_compared, FINDINGS)


def _sequences(name: str, batches: Batches) -> Batches:
    for batch in batches:
        yield pa.RecordBatch.from_arrays([batch.column(name).drop_null()], schema=_SEQUENCE)


def batches_of(findings: Iterator[Finding]) -> Batches:
    """Findings in columns."""
    while some := list(islice(findings, _AT_ONCE)):
        yield pa.RecordBatch.from_arrays(list(map(pa.array, zip(*some, strict=True), FINDINGS.types)), schema=FINDINGS)


def _compared(batches: Batches) -> Batches:
    yield from batches_of(_found_in(row for batch in batches for row in batch.to_pylist()))


def _found_in(rows: Iterable[dict[str, Any]]) -> Iterator[Finding]:
    for (source, number, state), group in groupby(rows, itemgetter(*KEYS, "state")):
        lefts: list[ComparedMessage] = []
        rights: list[ComparedMessage] = []
        for row in group:
            rest = (row[name] or b"" for name in _MESSAGE)
            if row["right"] is None:
                lefts.append(ComparedMessage(row["left"], *rest))
            else:
                rights.append(ComparedMessage(row["right"], *rest))
        if state == State.UNIDENTIFIED:
            yield from alone("unidentified", "", lefts, rights)
        else:
            yield from found(identity(source, number), lefts, rights)


def identity(source: bytes, number: int) -> str:
    """Return an identity as text: source and sequence, or the only part that it has."""
    return f"{text(source)} {number}" if source and number else text(source) or str(number)


Overview: TypeAlias = tuple[dict[str, int], dict[str, int], dict[str, list[Finding]]]


def overview_of(findings: Rows) -> Overview:
    """Count findings, and keep the first ones.

    Returns:
        How many there are of each kind, in the order of `KINDS`; the headers that differ most often; and
        the first ones of each kind, by sequence.
    """
    number: Counter[str] = Counter()
    headers: Counter[str] = Counter()
    for row in (
        findings.selected("kind", "field", "identity")
        .grouped(["kind", "field"], [("identity", "count")])
        .table()
        .to_pylist()
    ):
        number[row["kind"]] += row["identity_count"]
        if row["kind"] == "header":
            headers[row["field"]] = row["identity_count"]
    firsts = findings.mapped(_firsts, FINDINGS).table()
    examples = _first_ones(map(Finding._make, zip(*firsts.to_pydict().values(), strict=True)))
    frequent = dict(sorted(headers.items(), key=lambda each: (-each[1], each[0]))[:_HEADERS])
    kinds = [kind for kind in KINDS if number[kind]]
    return {kind: number[kind] for kind in kinds}, frequent, {kind: examples[kind] for kind in kinds}


def _firsts(batches: Batches) -> Batches:
    every = (Finding._make(row) for batch in batches for row in zip(*batch.to_pydict().values(), strict=True))
    yield from batches_of(each for some in _first_ones(every).values() for each in some)


def _first_ones(every: Iterable[Finding]) -> dict[str, list[Finding]]:
    kept: dict[str, list[Finding]] = defaultdict(list)
    for finding in every:
        some = kept[finding.kind]
        some.append(finding)
        if len(some) > 100 * _EXAMPLES:
            some[:] = sorted(some, key=_place)[:_EXAMPLES]
    return {kind: sorted(some, key=_place)[:_EXAMPLES] for kind, some in kept.items()}


def _place(finding: Finding) -> tuple[int, str, int]:
    sequence = finding.right_sequence if finding.left_sequence is None else finding.left_sequence
    return sequence or 0, finding.field, finding.right_sequence or 0


_PAIR: Final = ("source", "number", "group", "left", "right")


def order_findings(matches: Rows) -> Rows:
    """Return findings about the messages that are out of order, with columns `FINDINGS`.

    Args:
        matches: see `matching.matched`; of messages that a side has several times, the first ones count.
    """
    pairs = matches.where("common").selected(*_PAIR)
    return pairs.together(["group"], ["group", "right"]).mapped(_overtaken, FINDINGS)


def _overtaken(batches: Batches) -> Batches:
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
        rows = batch.filter(pa.array(overtaken)).to_pylist()
        yield from batches_of(
            Finding("order", identity(row["source"], row["number"]), row["left"], row["right"]) for row in rows
        )
