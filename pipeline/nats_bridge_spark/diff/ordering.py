"""Which messages are out of order: the common messages of both sides, whose relative order differs.

Definition: of the messages that both sides have, in the order of the left, those are out of order that are not in a
longest subsequence whose sequences on the right increase; that is, the fewest that would have to be moved. Messages of
different sources (or entries of a rule) have no order among each other, so each such group is compared alone.

Theory of operation: Spark looks which messages are overtaken: a higher sequence on the right stands before them.
Usually none is, and all is in order. Else those are taken out, and what overtakes: a message to which neither is done
is in order with every other one, so it is in every longest subsequence. What is taken out is usually little, and is
decided in one place; where it is more than `MOST`, each message that is overtaken is counted instead, and that is said.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

MOST: Final = 1_000_000
"""Messages that are between displaced ones, of which the fewest to be moved are still determined."""


def out_of_order(pairs: DataFrame, *, most: int = MOST) -> tuple[DataFrame | None, bool]:
    """The messages that are out of order.

    Args:
        pairs: columns `left` and `right`, the sequences of a message on both sides, and `grouped`.
        most: see `MOST`.

    Returns:
        columns `left`, `right` and `late` (whether it comes later on the right than those around it), None where all
        are in order; and whether they are the fewest, which is as few as can be sent to every task.
    """
    group = Window.partitionBy("grouped")
    before = group.orderBy("left").rowsBetween(Window.unboundedPreceding, -1)
    behind = group.orderBy(F.desc("left")).rowsBetween(Window.unboundedPreceding, -1)
    looked = pairs.withColumn("highest", F.max("right").over(before))
    is_overtaken = F.col("right") < F.col("highest")
    overtaken = looked.where(is_overtaken).select("left", "right", F.lit(True).alias("late"))
    if overtaken.isEmpty():
        return None, True
    looked = looked.withColumn("lowest", F.min("right").over(behind))
    involved = looked.where(is_overtaken | (F.col("right") > F.col("lowest"))).select("grouped", "left", "right")
    some = involved.limit(most + 1).toArrow()
    if some.num_rows > most:
        return overtaken, False
    some = some.sort_by([("grouped", "ascending"), ("left", "ascending")])
    groups, lefts, rights = (some.column(name).to_pylist() for name in ("grouped", "left", "right"))
    found = fewest(groups, lefts, rights)
    return pairs.sparkSession.createDataFrame(found, "left bigint, right bigint, late boolean"), True


def fewest(groups: list[int], lefts: list[int], rights: list[int]) -> list[tuple[int, int, bool]]:
    """The displaced messages of every group, which stand together and in the order of the left.

    Args:
        groups: the group of each message.
        lefts: its sequence on the left.
        rights: its sequence on the right.

    Returns:
        both sequences of each that is displaced, and whether it comes late on the right.
    """
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
