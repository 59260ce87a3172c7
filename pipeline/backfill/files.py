"""Histories that are written to files instead of published."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from nats_bridge.bridge.replication import AckReply
from nats_bridge.pipeline.backfill.outcomes import Made, Outcomes
from nats_bridge.pipeline.backfill.rows import deliveries_of
from nats_bridge.pipeline.errors import OptionError, marking

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


WRITTEN: Final = (
    "stream string, subject string, source_subject string, sequence bigint, time timestamp, time_ns bigint,"
    " header_block binary, data binary, rejected string"
)
"""A message as it would be published: its subject, header block and data; where it comes from; and why the target
would not take it, null if it would."""


def write_files(rows: DataFrame, outcomes: Outcomes, stream: str, path: str, *, mode: str) -> dict[str, int]:
    """Write the rule's results for the rows; see `WRITTEN` for the columns.

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
            for made in self.outcomes.made_of(deliveries_of(batch) for batch in batches):
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


def _texts(subjects: list[bytes]) -> pa.Array:
    """Strings with exactly these bytes; a function that cuts may have cut a character in two."""
    return pa.array(subjects, pa.binary()).view(pa.string())
