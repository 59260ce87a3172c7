"""Which messages are out of order: the common messages of both sides, whose relative order differs.

Definition: of the messages that both sides have, in the order of the left, those are out of order that are not in a
longest subsequence whose sequences on the right increase; that is, the fewest that would have to be moved. Messages of
different sources (or entries of a rule) have no order among each other, so each such group is compared alone.

Theory of operation: the left's sequences are cut into equal ranges, and each is sorted alone, in numpy. What the
ranges hold at most and at least on the right is enough to see whether all is in order, which it usually is. Else a
second look takes out what is overtaken (a higher sequence on the right stands before it) and what overtakes: a
message to which neither is done is in order with every other one, so it is in every longest subsequence. What is left
is usually little, and is decided in one place; where it is more than `MOST`, each message that is overtaken is counted
instead, and that is said.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame


MOST: Final = 1_000_000
"""Messages that are between displaced ones, of which the fewest to be moved are still determined."""

_RANGES: Final = 16  # at least so many
_WIDTH: Final = 100_000  # sequences of a range, in longer streams
_MOST_RANGES: Final = 100_000
_SCHEMA: Final = "left bigint, right bigint, late boolean"
_NOTHING_BEFORE: Final = -1
_NOTHING_BEHIND: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class _Around:
    """The highest sequence on the right in the ranges before one, and the lowest in those behind it, by group."""

    before: dict[tuple[int, int], int]
    behind: dict[tuple[int, int], int]


def out_of_order(pairs: DataFrame, first: int, last: int, *, most: int = MOST) -> tuple[DataFrame | None, bool]:
    """The messages that are out of order.

    Args:
        pairs: columns `left` and `right`, the sequences of a message on both sides, and `grouped`.
        first: the lowest sequence of the left.
        last: its highest.
        most: see `MOST`.

    Returns:
        columns `left`, `right` and `late` (whether it comes later on the right than those around it), None where all
        are in order; and whether they are the fewest, which is as few as can be sent to every task.
    """
    from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

    spark = pairs.sparkSession
    ranges = min(max((last - first) // _WIDTH, _RANGES), _MOST_RANGES)
    width = (last - first) // ranges + 1
    tasks = max(min(ranges, -(-(last - first) // (5 * _WIDTH))), 1)
    ranged = pairs.select(
        "grouped", F.floor((F.col("left") - first) / F.lit(width)).cast("bigint").alias("range"), "left", "right"
    ).repartition(tasks, "range")
    bounds = ranged.mapInArrow(_bounds, "grouped bigint, range bigint, low bigint, high bigint, ordered boolean")
    rows = [tuple(row) for row in bounds.collect()]
    around = _around(rows)
    if all(row[4] and around.before[row[0], row[1]] < row[2] for row in rows):
        return None, True

    def involved(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _involved(batches, around, overtaking=True)

    def overtaken(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _involved(batches, around, overtaking=False)

    schema = "grouped bigint, left bigint, right bigint"
    some = ranged.mapInArrow(involved, schema).limit(most + 1).toArrow()
    if some.num_rows <= most:
        some = some.sort_by([("grouped", "ascending"), ("left", "ascending")])
        groups, lefts, rights = (some.column(name).to_pylist() for name in ("grouped", "left", "right"))
        return spark.createDataFrame(_fewest(groups, lefts, rights), _SCHEMA), True
    return ranged.mapInArrow(overtaken, schema).select("left", "right", F.lit(True).alias("late")), False


def _around(rows: list[tuple[Any, ...]]) -> _Around:
    """Find what is before and after each range, from the bounds of all."""
    before: dict[tuple[int, int], int] = {}
    behind: dict[tuple[int, int], int] = {}
    highest: dict[int, int] = {}
    lowest: dict[int, int] = {}
    for grouped, number, _, high, _ in sorted(rows):
        before[grouped, number] = highest.get(grouped, _NOTHING_BEFORE)
        highest[grouped] = max(highest.get(grouped, _NOTHING_BEFORE), high)
    for grouped, number, low, _, _ in sorted(rows, reverse=True):
        behind[grouped, number] = lowest.get(grouped, _NOTHING_BEHIND)
        lowest[grouped] = min(lowest.get(grouped, _NOTHING_BEHIND), low)
    return _Around(before, behind)


@dataclass(frozen=True, slots=True)
class _Range:
    """The messages of a group in a range, in the order of the left."""

    grouped: int
    number: int
    lefts: NDArray[Any]
    rights: NDArray[Any]


def _ranges(batches: Iterator[pa.RecordBatch]) -> Iterator[_Range]:
    """What a task was given, taken apart."""
    import numpy as np

    every = list(batches)
    if not every:
        return
    grouped, numbers, lefts, rights = (
        np.concatenate([batch.column(at).to_numpy(zero_copy_only=False) for batch in every]) for at in range(4)
    )
    order = np.lexsort((lefts, numbers, grouped))
    grouped, numbers, lefts, rights = grouped[order], numbers[order], lefts[order], rights[order]
    changes = np.flatnonzero((grouped[1:] != grouped[:-1]) | (numbers[1:] != numbers[:-1])) + 1
    edges = [0, *changes.tolist(), len(grouped)]
    for start, end in pairwise(edges):
        if end > start:
            yield _Range(int(grouped[start]), int(numbers[start]), lefts[start:end], rights[start:end])


def _bounds(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    rows = [
        {
            "grouped": each.grouped,
            "range": each.number,
            "low": int(each.rights.min()),
            "high": int(each.rights.max()),
            "ordered": bool((each.rights[1:] > each.rights[:-1]).all()),
        }
        for each in _ranges(batches)
    ]
    kinds = {name: pa.int64() for name in ("grouped", "range", "low", "high")}
    yield pa.RecordBatch.from_pylist(rows, pa.schema([*kinds.items(), ("ordered", pa.bool_())]))


def _involved(batches: Iterator[pa.RecordBatch], around: _Around, *, overtaking: bool) -> Iterator[pa.RecordBatch]:
    """Messages that are overtaken, and those that overtake if these are wanted."""
    import numpy as np
    import pyarrow as pa

    for each in _ranges(batches):
        key = each.grouped, each.number
        highest = np.maximum.accumulate(np.concatenate(([around.before[key]], each.rights[:-1])))
        chosen = each.rights < highest
        if overtaking:
            lowest = np.minimum.accumulate(np.concatenate(([around.behind[key]], each.rights[:0:-1])))[::-1]
            chosen |= each.rights > lowest
        lefts, rights = each.lefts[chosen], each.rights[chosen]
        if len(lefts):
            groups = np.full(len(lefts), each.grouped, dtype=np.int64)
            columns = [pa.array(column, pa.int64()) for column in (groups, lefts, rights)]
            yield pa.RecordBatch.from_arrays(columns, names=["grouped", "left", "right"])


def _fewest(groups: list[int], lefts: list[int], rights: list[int]) -> list[tuple[int, int, bool]]:
    """The displaced messages of every group, which stand together and in the order of the left."""
    found = []
    start = 0
    for end in range(1, len(groups) + 1):
        if end < len(groups) and groups[end] == groups[start]:
            continue
        moved = displaced(rights[start:end])
        away = set(moved)
        # Lowest sequence on the right among the messages in order that follow: what is above it comes late.
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
            found.append((lefts[start + at], rights[start + at], is_late))
        start = end
    return found


def displaced(values: Sequence[int]) -> list[int]:
    """The indexes of all values that are not in a longest increasing subsequence; of several, the one that ends lowest.

    Takes time as n log n, and memory for three integers per value.

    Args:
        values: all different.
    """
    ends: list[int] = []  # the lowest value with which an increasing subsequence of each length ends
    places: list[int] = []  # where that value is
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
