"""Which messages are out of order: the common messages of both sides, whose relative order differs.

Definition: of the messages that both sides have, in the order of the left, those are out of order that are not in a
longest subsequence whose sequences on the right increase; that is, the fewest that would have to be moved. Messages of
different origins (or entries of a rule) have no order among each other, so each such group is looked at by itself.

Theory of operation: the left's sequences are cut into equal ranges, and each is sorted by itself: the highest sequence
on the right before a message (in its range, or in those before it) tells whether it is overtaken. If none is, all is
in order. Else the lowest sequence behind each message tells whether it overtakes one. A message to which neither is
done is in order with every other one, so it is in every longest subsequence. What is left is usually little, and is
decided in one place; where it is more than `MOST`, each message that comes after a later one is counted instead, and
that is said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pipeline.diff.longest_increasing import displaced

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.window import WindowSpec

__all__ = ["MOST", "out_of_order"]

MOST: Final = 1_000_000
"""Messages that are between displaced ones, of which the fewest to be moved are still determined."""

_RANGES: Final = 64  # at least so many
_WIDTH: Final = 100_000  # sequences of a range, in longer streams
_SCHEMA: Final = "left bigint, right bigint, late boolean"


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
    ranges = min(max((last - first) // _WIDTH, _RANGES), _WIDTH)
    width = (last - first) // ranges + 1
    ranged = pairs.withColumn("range", F.floor((F.col("left") - first) / F.lit(width)).cast("bigint"))
    overtaken = _overtaken(ranged)
    if overtaken.isEmpty():
        return None, True
    involved = overtaken.unionByName(_overtaking(ranged)).distinct().persist()
    try:
        if involved.count() <= most:
            rows = involved.orderBy("grouped", "left").toArrow()
            groups, lefts, rights = (rows.column(name).to_pylist() for name in ("grouped", "left", "right"))
            return spark.createDataFrame(_fewest(groups, lefts, rights), _SCHEMA), True
    finally:
        involved.unpersist()
    return overtaken.select("left", "right", F.lit(True).alias("late")), False


def _overtaken(ranged: DataFrame) -> DataFrame:
    """Messages before which, on the left, there is one that comes after them on the right."""
    from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

    bounds = ranged.groupBy("grouped", "range").agg(F.max("right").alias("bound"))
    around = bounds.select("grouped", "range", F.max("bound").over(_before("grouped", "range")).alias("bound"))
    here = F.max("right").over(_before("grouped", "range", "left"))
    return _marked(ranged.withColumn("here", here), around, F.col("right") < F.greatest("here", "bound"))


def _overtaking(ranged: DataFrame) -> DataFrame:
    """Messages behind which, on the left, there is one that comes before them on the right."""
    from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

    # Backwards, because Spark takes quadratic time for a frame that reaches to the end.
    bounds = ranged.groupBy("grouped", "range").agg(F.min("right").alias("bound"))
    around = bounds.select("grouped", "range", F.min("bound").over(_before("grouped", "-range")).alias("bound"))
    here = F.min("right").over(_before("grouped", "range", "-left"))
    return _marked(ranged.withColumn("here", here), around, F.col("right") > F.least("here", "bound"))


def _before(*columns: str) -> WindowSpec:
    """The rows before each one: the last column orders, downwards with a minus sign; the others part."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

    order = columns[-1]
    by = F.col(order[1:]).desc() if order.startswith("-") else F.col(order)
    return Window.partitionBy(*columns[:-1]).orderBy(by).rowsBetween(Window.unboundedPreceding, -1)


def _marked(ranged: DataFrame, around: DataFrame, condition: Column) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

    return ranged.join(F.broadcast(around), ["grouped", "range"]).where(condition).select("grouped", "left", "right")


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
