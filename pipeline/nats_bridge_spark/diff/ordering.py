"""Finds messages out of order: common messages of both sides, whose relative order differs.

Definition: take the messages that both sides have, in the order of the left. A message is out of order if it is not in
a longest subsequence whose sequences on the right increase; these are the fewest that would have to be moved. Messages
of different sources (or entries of a rule) have no order among each other, so each such group is compared alone.

Theory of operation. The messages of a group are read in the order of the left, which shows overtaken ones: a higher
sequence on the right comes before them. Usually there are none, and all are in order. Otherwise the overtaken and the
overtaking messages are extracted. A message that is neither is in order with every other one, so it is in every longest
subsequence. The extracted messages are usually few, and are processed in one place. If there are more than `MOST`, each
overtaken message is counted instead, and the report mentions it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from nats_bridge_spark.diff.details import batches_of, identity
from nats_bridge_spark.diff.findings import FINDINGS, Finding
from nats_bridge_spark.diff.rows import Batches, Rows

MOST: Final = 1_000_000
"""Maximum number of extracted messages for which the fewest to be moved are determined."""

_PAIR: Final = pa.schema(
    [("source", pa.binary()), *((name, pa.int64()) for name in ("number", "group", "left", "right"))]
)


_Pair: TypeAlias = tuple[bytes, int, int, int, int]


def order_findings(matches: Rows, *, most: int = MOST) -> tuple[Rows | None, bool]:
    """Findings about the messages that are out of order.

    Args:
        matches: see `matching.matched`; of messages that a side has several times, the first ones count.
        most: see `MOST`.

    Returns:
        Rows with the columns `FINDINGS`, None if all are in order; and whether they are the fewest.
    """
    pairs = matches.where("common").selected(*_PAIR.names)
    ahead = pairs.together(["group"], [("group", "ascending"), ("left", "ascending")])
    overtaken = ahead.mapped(partial(_passed, 1), _PAIR).kept()
    if not overtaken.first(1).table().num_rows:
        return None, True
    back = pairs.together(["group"], [("group", "ascending"), ("left", "descending")])
    involved = overtaken.united(back.mapped(partial(_passed, -1), _PAIR)).first(2 * most + 1).table()
    rows: dict[tuple[int, int, int], _Pair] = {row[2:]: row for row in zip(*involved.to_pydict().values(), strict=True)}
    if len(rows) > most:
        return overtaken.mapped(_all_late, FINDINGS), False
    groups, lefts, rights = (list(column) for column in zip(*sorted(rows), strict=True))
    moved = [_finding(rows[of, left, right], late=late) for of, left, right, late in fewest(groups, lefts, rights)]
    return pairs.alike(pa.Table.from_batches(batches_of(iter(moved)), FINDINGS)), True


def _passed(sign: int, batches: Batches) -> Batches:
    """Yield the messages that have a higher sequence on the right before them in their group; with -1, a lower one.

    Args:
        sign: 1 or -1.
        batches: columns `_PAIR`, sorted by group.
    """
    last, highest = None, 0
    for batch in filter(len, batches):
        groups, values = batch.column("group").to_numpy(), sign * batch.column("right").to_numpy()
        starts = [0, *(np.flatnonzero(np.diff(groups)) + 1), len(groups)]
        passed = np.zeros(len(groups), np.bool_)
        for start, end in pairwise(starts):
            before = [highest if groups[start] == last else values[start]]
            reached = np.maximum.accumulate(np.concatenate([before, values[start:end]]))
            passed[start:end] = values[start:end] < reached[:-1]
            last, highest = groups[start], reached[-1]
        yield batch.filter(pa.array(passed))


def _all_late(batches: Batches) -> Batches:
    for batch in batches:
        yield from batches_of(_finding(row, late=True) for row in zip(*batch.to_pydict().values(), strict=True))


def _finding(pair: _Pair, *, late: bool) -> Finding:
    source, number, _, left, right = pair
    return Finding("order", identity(source, number), left, right, "", None, "later" if late else "earlier")


def fewest(groups: list[int], lefts: list[int], rights: list[int]) -> Iterator[tuple[int, int, int, bool]]:
    """Yield the displaced messages of every group, which stand together and in the order of the left.

    Args:
        groups: the group of each message.
        lefts: its sequence on the left.
        rights: its sequence on the right.

    Returns:
        Group and both sequences of each displaced message, and whether it is late on the right.
    """
    start = 0
    for end in range(1, len(groups) + 1):
        if end < len(groups) and groups[end] == groups[start]:
            continue
        moved = displaced(rights[start:end])
        away = set(moved)
        # The lowest right sequence of the following messages in order: any above it is late.
        lowest = None
        following: dict[int, int | None] = {}
        for at in range(end - start - 1, -1, -1):
            if at in away:
                following[at] = lowest
            else:
                lowest = rights[start + at]
        for at in moved:
            behind = following[at]
            is_late = behind is not None and rights[start + at] > behind
            yield groups[start], lefts[start + at], rights[start + at], is_late
        start = end


def displaced(values: Sequence[int]) -> list[int]:
    """Return the indexes of values outside a longest increasing subsequence; of several, the one that ends lowest.

    Takes time as n log n, and memory for three integers per value.

    Args:
        values: all different.
    """
    ends: list[int] = []  # the lowest last value of an increasing subsequence, by length
    places: list[int] = []  # the index of that value
    before = [-1] * len(values)
    for at, value in enumerate(values):
        length = bisect_left(ends, value)
        if length:
            before[at] = places[length - 1]
        if length == len(ends):
            ends.append(value)
            places.append(at)
        else:
            ends[length] = value
            places[length] = at
    kept = set()
    at = places[-1] if places else -1
    while at >= 0:
        kept.add(at)
        at = before[at]
    return [at for at in range(len(values)) if at not in kept]
