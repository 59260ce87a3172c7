"""Counting what a backfill would do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from nats_bridge.pipeline.backfill.outcomes import COUNTED, Counting, Outcomes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Count", "DryRun", "dry_run"]


@dataclass(frozen=True, slots=True)
class Count:
    """Messages that are alike.

    Attributes:
        what: their destination subject, or why the target would not take them.
        messages: how many.
        bytes: of header blocks and payloads.
        example: the origin's sequence of one of them.
    """

    what: str
    messages: int
    bytes: int
    example: int


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a backfill would do with one source's history.

    Attributes:
        source: the stream that would be copied from.
        target: the stream that would receive.
        first: the sequence at which it would begin.
        last: the sequence at which it would end.
        read: messages in between.
        selected: what would be published.
        bytes: of these, header blocks and payloads.
        unselected: what the rule does not mean.
        rejected: what the target would not take.
        subjects: how many destination subjects there are.
        top: those with the most messages.
        reasons: why messages would be rejected, the most frequent first.
    """

    source: str
    target: str
    first: int
    last: int
    read: int = 0
    selected: int = 0
    bytes: int = 0
    unselected: int = 0
    rejected: int = 0
    subjects: int = 0
    top: tuple[Count, ...] = ()
    reasons: tuple[Count, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The same, as plain data."""
        told = {name: getattr(self, name) for name in self.__slots__ if name not in ("top", "reasons")}
        told["top"] = [
            {"subject": each.what, "messages": each.messages, "bytes": each.bytes, "example": each.example}
            for each in self.top
        ]
        told["reasons"] = [
            {"reason": each.what, "messages": each.messages, "example": each.example} for each in self.reasons
        ]
        return told

    def lines(self) -> list[str]:
        """The same for a person."""
        head = f"{self.source} → {self.target}: would publish {self.selected:,} of {self.read:,} messages"
        lines = [
            f"{head} ({self.first} to {self.last}), {self.bytes:,} bytes, on {self.subjects:,} subjects;"
            f" {self.unselected:,} not selected, {self.rejected:,} not taken by the target"
        ]
        width = max((len(f"{each.messages:,}") for each in (*self.top, *self.reasons)), default=0)
        lines += [f"  {each.messages:>{width},}  {each.what}" for each in self.top]
        if self.subjects > len(self.top):
            lines.append(f"  … and {self.subjects - len(self.top):,} more subjects")
        lines += [
            f"  {each.messages:>{width},}  not taken: {each.what} (such as sequence {each.example})"
            for each in self.reasons
        ]
        return lines


def dry_run(rows: DataFrame, outcomes: Outcomes, nothing: DryRun, top: int) -> DryRun:
    """Count.

    Args:
        rows: the history.
        outcomes: the rule.
        nothing: what is reported where there are no rows.
        top: how many subjects, and reasons, are named.
    """
    from pyspark.sql import Window, functions

    outcome = Window.partitionBy("outcome")
    alike = (
        rows.mapInArrow(Counting(outcomes), COUNTED)
        .groupBy("outcome", "subject", "reason")
        .agg(
            functions.sum("messages").alias("messages"),
            functions.sum("bytes").alias("bytes"),
            functions.min("example").alias("example"),
        )
    )
    ranked = (
        alike.withColumn("all_messages", functions.sum("messages").over(outcome))
        .withColumn("all_bytes", functions.sum("bytes").over(outcome))
        .withColumn("kinds", functions.count("*").over(outcome))
        .withColumn(
            "rank", functions.row_number().over(outcome.orderBy(functions.desc("messages"), "subject", "reason"))
        )
    )
    most = ranked.where(functions.col("rank") <= top).orderBy("outcome", "rank").collect()
    totals = {row["outcome"]: row for row in most}

    def total(outcome: str, column: str = "all_messages") -> int:
        return int(totals[outcome][column]) if outcome in totals else 0

    def named(outcome: str, column: str) -> tuple[Count, ...]:
        return tuple(
            Count(row[column], row["messages"], row["bytes"], row["example"])
            for row in most
            if row["outcome"] == outcome
        )

    return replace(
        nothing,
        read=sum(total(outcome) for outcome in totals),
        selected=total("selected"),
        bytes=total("selected", "all_bytes"),
        unselected=total("unselected"),
        rejected=total("rejected"),
        subjects=total("selected", "kinds"),
        top=named("selected", "subject"),
        reasons=named("rejected", "reason"),
    )
