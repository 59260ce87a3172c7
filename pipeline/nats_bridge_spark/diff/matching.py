"""Joins the digests of both sides by identity, and finds those that differ.

Theory of operation: one row per message of either side, spread by identity, is added up per identity: how many messages
each side has, the lowest sequence of each, and the exclusive or of all digests. Where each side has one message and the
digests cancel out, the messages are equal; every other identity is compared by its full messages (`details`). That
costs one shuffle of small rows and no sorting.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from nats_bridge_spark.diff.comparing import Comparison, bits_of, ignored_of
from nats_bridge_spark.diff.digests import digested, key_columns
from nats_bridge_spark.diff.result import Counts

_RIGHT: Final = 1 << 32
"""One message of the right in a count of both sides; the left ones are below it."""

PER_TASK: Final = 500_000
"""Messages whose identities one task brings together: some 100 MB of its memory."""


def matched(left: DataFrame, right: DataFrame, comparison: Comparison, messages: int) -> DataFrame:
    """One row per identity.

    Args:
        left: the left side's messages, with the columns of a capture.
        right: the right side's.
        comparison: what is compared.
        messages: about how many there are on both sides together.

    Returns:
        columns `source` (where identities have one), `number`, `messages` (of the left; 2³² for each of the right),
        `left`, `right` (the lowest sequences), `grouped`, `odd`, and `ignored_<bit>` counted as `messages` is.
    """
    keys = key_columns(comparison)
    bits = bits_of(comparison)

    def one(frame: DataFrame, is_right: bool) -> DataFrame:
        found = digested(frame, comparison, right=is_right)
        ignored = ["ignored"] if bits else []
        return found.select(*keys, F.lit(is_right).alias("is_right"), "sequence", "grouped", "digest", *ignored)

    parts = max(left.sparkSession.sparkContext.defaultParallelism, -(-messages // PER_TASK))
    # What is computed from these few columns is computed behind the shuffle, which carries as little as can be.
    both = one(left, False).unionByName(one(right, True)).repartition(parts, *keys)
    unit = F.when(F.col("is_right"), F.lit(_RIGHT)).otherwise(F.lit(1)).cast("bigint")
    added = both.groupBy(*keys).agg(
        F.sum(unit).alias("messages"),
        F.min(F.when(~F.col("is_right"), F.col("sequence"))).alias("left"),
        F.min(F.when(F.col("is_right"), F.col("sequence"))).alias("right"),
        F.max("grouped").alias("grouped"),
        F.bit_xor("digest").alias("digest"),
        *(F.sum(_bit("ignored", bit, unit)).alias(f"ignored_{bit}") for bit in bits),
    )
    odd = (F.col("messages") != 1 + _RIGHT) | (F.col("digest") != 0)
    return added.withColumn("odd", odd).drop("digest")


def counts(found: DataFrame, comparison: Comparison) -> Counts:
    """Sum the rows of `matched`."""
    bits = bits_of(comparison)

    def number(condition: Column) -> Column:
        return F.sum(F.when(condition, 1).otherwise(0))

    columns = {
        "left": F.sum(_of_left("messages")),
        "right": F.sum(_of_right("messages")),
        "equal": number(~F.col("odd")),
        "common": number((_of_left("messages") > 0) & (_of_right("messages") > 0)),
        "odd": number(F.col("odd")),
        "duplicated": number((_of_left("messages") > 1) | (_of_right("messages") > 1)),
    }
    for bit in bits:
        columns[f"left_{bit}"] = F.sum(_of_left(f"ignored_{bit}"))
        columns[f"right_{bit}"] = F.sum(_of_right(f"ignored_{bit}"))
    row: dict[str, Any] = found.agg(*(column.alias(name) for name, column in columns.items())).collect()[0].asDict()
    shown = {name: int(value or 0) for name, value in row.items()}
    every = ignored_of(comparison)
    ignored = {every[bit]: (shown[f"left_{bit}"], shown[f"right_{bit}"]) for bit in bits}
    return Counts(
        **{name: shown[name] for name in ("left", "right", "equal", "common", "odd", "duplicated")},
        ignored={what: messages for what, messages in ignored.items() if any(messages)},
    )


def _bit(name: str, bit: int, unit: Column) -> Column:
    return F.shiftright(F.col(name), bit).bitwiseAND(1) * unit


def _of_left(name: str) -> Column:
    return F.col(name).bitwiseAND(_RIGHT - 1)


def _of_right(name: str) -> Column:
    return F.shiftright(F.col(name), 32)
