"""Counts findings of each kind, and keeps the first ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from nats_bridge.pipeline.diff.findings import KINDS, Finding

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_FEW: Final = 5_000
"""Findings that are counted here, at once; more are counted by Spark."""

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
    """Count findings, and keep the first `most` of each kind."""
    some = [_finding(row) for row in findings.limit(_FEW + 1).collect()]
    return _counted(some, most) if len(some) <= _FEW else _counted_by_spark(findings, most)


def _finding(row: Sequence[Any]) -> Finding:
    """From the columns `details.FINDINGS`."""
    kind, identity, left_sequence, right_sequence, field, left, right = row
    return Finding(kind, left_sequence, right_sequence, field, left, right, identity)


def _counted(every: list[Finding], most: int) -> Overview:
    number = Counter(each.kind for each in every)
    headers = Counter((each.kind, each.field) for each in every if each.kind.startswith("header-"))
    every.sort(key=lambda each: each.place)
    kinds = [kind for kind in KINDS if number[kind]]
    return Overview(
        kinds={kind: number[kind] for kind in kinds},
        headers=dict(sorted(headers.items(), key=lambda each: (-each[1], each[0]))[:_MOST_HEADERS]),
        examples={kind: tuple([each for each in every if each.kind == kind][:most]) for kind in kinds},
    )


def _counted_by_spark(findings: DataFrame, most: int) -> Overview:
    from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

    number = {row[0]: row[1] for row in findings.groupBy("kind").count().collect()}
    of_headers = findings.where(F.col("kind").startswith("header-")).groupBy("kind", "field").count()
    headers = of_headers.orderBy(F.desc("count"), "kind", "field").limit(_MOST_HEADERS).collect()
    order = F.coalesce("left_sequence", "right_sequence")
    kinds = [kind for kind in KINDS if kind in number]
    return Overview(
        kinds={kind: number[kind] for kind in kinds},
        headers={(row[0], row[1]): row[2] for row in headers},
        examples={
            kind: tuple(
                _finding(row)
                for row in findings.where(F.col("kind") == kind).orderBy(order, "field").limit(most).collect()
            )
            for kind in kinds
        },
    )
