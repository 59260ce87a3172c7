"""Counts findings of each kind, and keeps the first ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from nats_bridge.pipeline.diff.findings import KINDS, Finding

_MOST_HEADERS: Final = 20


@dataclass(frozen=True, slots=True)
class Overview:
    """The counts and examples.

    Attributes:
        kinds: how many findings of each kind, in the order of `findings.KINDS`.
        headers: how many of each kind and header, the most frequent ones.
        examples: the first ones of each kind, by sequence.
    """

    kinds: dict[str, int]
    headers: dict[tuple[str, str], int]
    examples: dict[str, tuple[Finding, ...]]


def overview_of(findings: DataFrame, most: int) -> Overview:
    """Count findings with the columns `details.FINDINGS`, and keep the first `most` of each kind."""
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
    return Overview(
        kinds={kind: number[kind] for kind in examples},
        headers=dict(sorted(headers.items(), key=lambda each: (-each[1], each[0]))[:_MOST_HEADERS]),
        examples={kind: tuple(sorted(some, key=lambda each: each.place)) for kind, some in examples.items()},
    )
