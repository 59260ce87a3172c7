"""Histories that are not published: written to files, or counted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from nats_bridge.bridge.replication import AckReply
from nats_bridge.pipeline.backfill.outcomes import Made, Outcomes
from nats_bridge.pipeline.backfill.rows import deliveries_of
from nats_bridge.pipeline.backfill.summary import Count, DryRun
from nats_bridge.pipeline.errors import OptionError, marking

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["COUNTED", "WRITTEN", "Counting", "Writing", "dry_run", "write_files"]

WRITTEN: Final = (
    "stream string, subject string, source_subject string, sequence bigint, time timestamp, time_ns bigint,"
    " header_block binary, data binary, rejected string"
)
"""A message as it would be published: its subject, header block and data; where it comes from; and why the target
would not take it, null if it would."""

COUNTED: Final = "outcome string, subject string, reason string, messages bigint, bytes bigint, example bigint"
"""Counts of a task: `outcome` is `selected`, `unselected` or `rejected`; `example` is a sequence of the source."""

_SIZE: Final = re.compile(r"it has \d+ bytes")


def write_files(rows: DataFrame, outcomes: Outcomes, stream: str, path: str, *, mode: str) -> dict[str, int]:
    """Write what the rule makes of the rows; see `WRITTEN` for the columns.

    Args:
        rows: the history.
        outcomes: the rule.
        stream: the source's name.
        path: the folder, which appears as a whole at the end.
        mode: of the writer: `errorifexists`, `overwrite` or `append`.

    Returns:
        How many `rows` the history had; how many are `copied`, `rejected` and `unselected`.

    Raises:
        OptionError: the folder is there, and is not to be replaced.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import Observation, functions

    read, made = Observation(), Observation()
    history = rows.observe(read, functions.count(functions.lit(1)).alias("read"))
    rejected = functions.sum(functions.when(functions.col("rejected").isNotNull(), 1).otherwise(0))
    rows_made = history.mapInArrow(Writing(outcomes, stream), WRITTEN).observe(
        made, functions.count(functions.lit(1)).alias("made"), rejected.alias("rejected")
    )
    try:
        rows_made.write.mode(mode).parquet(path)
    except AnalysisException as error:
        if error.getCondition() == "PATH_ALREADY_EXISTS":
            raise OptionError(
                f"--to-parquet {path}: exists: name another folder, or replace it with --overwrite"
            ) from None
        raise
    rows_read, dead_letters = int(read.get["read"]), int(made.get["rejected"] or 0)
    copied = int(made.get["made"]) - dead_letters
    return {
        "rows": rows_read,
        "copied": copied,
        "rejected": dead_letters,
        "unselected": rows_read - copied - dead_letters,
    }


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


@dataclass(frozen=True, slots=True)
class Writing:
    """Gives rows for files; called by Spark with the rows of a partition.

    Attributes:
        outcomes: the rule.
        stream: the source's name.
    """

    outcomes: Outcomes
    stream: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows (see `WRITTEN`)."""
        with marking():
            for made, _ in self.outcomes.made_of(deliveries_of(batch) for batch in batches):
                if made:
                    yield self._rows(made)

    def _rows(self, made: Sequence[Made]) -> pa.RecordBatch:
        acks = [AckReply.parse(each.source[1]) for each in made]
        times = pa.array([ack.time_ns for ack in acks], pa.int64())
        return pa.record_batch(
            {
                "stream": pa.array([self.stream] * len(made)),
                "subject": _texts([each.subject for each in made]),
                "source_subject": _texts([each.source[0] for each in made]),
                "sequence": pa.array([ack.stream_sequence for ack in acks], pa.int64()),
                "time": pa.array([ack.time_ns // 1000 for ack in acks], pa.timestamp("us", "UTC")),
                "time_ns": times,
                "header_block": pa.array([each.header_block or None for each in made], pa.binary()),
                "data": pa.array([each.payload for each in made], pa.binary()),
                "rejected": pa.array([each.rejected or None for each in made], pa.string()),
            }
        )


@dataclass(frozen=True, slots=True)
class Counting:
    """Counts; called by Spark with the rows of a partition.

    Attributes:
        outcomes: the rule.
    """

    outcomes: Outcomes

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Some rows per batch (see `COUNTED`)."""
        with marking():
            for made, unselected in self.outcomes.made_of(deliveries_of(batch) for batch in batches):
                yield _counted(made, unselected)


def _counted(made: Sequence[Made], unselected: int) -> pa.RecordBatch:
    counts: dict[tuple[str, bytes, str], list[int]] = {}
    for each in made:
        if each.rejected:
            # Sizes differ from message to message, the reason does not.
            key = ("rejected", b"", _SIZE.sub("it has too many bytes", each.rejected))
        else:
            key = ("selected", each.subject, "")
        size = len(each.header_block) + len(each.payload)
        found = counts.get(key)
        if found is None:
            counts[key] = [1, size, AckReply.parse(each.source[1]).stream_sequence]
        else:
            found[0] += 1
            found[1] += size
    if unselected:
        counts["unselected", b"", ""] = [unselected, 0, 0]
    keys, values = list(counts), list(counts.values())
    return pa.record_batch(
        {
            "outcome": pa.array([outcome for outcome, _, _ in keys], pa.string()),
            "subject": _texts([subject for _, subject, _ in keys]),
            "reason": pa.array([reason for _, _, reason in keys], pa.string()),
            "messages": pa.array([value[0] for value in values], pa.int64()),
            "bytes": pa.array([value[1] for value in values], pa.int64()),
            "example": pa.array([value[2] for value in values], pa.int64()),
        }
    )


def _texts(subjects: list[bytes]) -> pa.Array:
    """Strings with exactly these bytes; a function that cuts may have cut a character in two."""
    return pa.array(subjects, pa.binary()).view(pa.string())
