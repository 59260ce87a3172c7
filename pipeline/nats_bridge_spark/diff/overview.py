"""Counts findings of each kind, and keeps the first ones."""

from __future__ import annotations

from collections import Counter
from typing import Final, TypeAlias

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from nats_bridge_spark.diff.findings import KINDS, Finding

MOST_HEADERS: Final = 20


Examples: TypeAlias = dict[str, tuple[Finding, ...]]


def overview_of(findings: DataFrame, most: int) -> tuple[dict[str, int], dict[tuple[str, str], int], Examples]:
    """Count findings, and keep the first ones.

    Args:
        findings: with the columns `details.FINDINGS`.
        most: how many to keep of each kind.

    Returns:
        How many there are of each kind, in the order of `findings.KINDS`; of each kind and header, the most frequent
        ones; and the first ones of each kind, by sequence.
    """
    number: Counter[str] = Counter()
    headers: dict[tuple[str, str], int] = {}
    for kind, field, count in findings.groupBy("kind", "field").count().collect():
        number[kind] += count
        if kind.startswith("header-"):
            headers[kind, field] = count
    order = Window.partitionBy("kind").orderBy(F.coalesce("left_sequence", "right_sequence"), "field")
    firsts = findings.withColumn("place", F.row_number().over(order)).where(F.col("place") <= most).drop("place")
    examples: dict[str, list[Finding]] = {kind: [] for kind in KINDS if number[kind]}
    for kind, identity, left_sequence, right_sequence, field, left, right in firsts.collect():
        examples[kind].append(Finding(kind, left_sequence, right_sequence, field, left, right, identity))
    return (
        {kind: number[kind] for kind in examples},
        dict(sorted(headers.items(), key=lambda each: (-each[1], each[0]))[:MOST_HEADERS]),
        {kind: tuple(sorted(some, key=lambda each: each.place)) for kind, some in examples.items()},
    )
