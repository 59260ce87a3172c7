"""The history to be copied, as rows: from the live stream, or from a capture of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.settings import Connection
from pipeline.backfill.rows import COLUMNS
from pipeline.columns import ddl
from pipeline.connections import options_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["captured_history", "in_order", "live_history"]


def live_history(
    spark: SparkSession,
    connection: Connection,
    stream: str,
    first: int,
    last: int,
    *,
    subjects: tuple[str, ...] = (),
    partitions: int | None = 1,
) -> DataFrame:
    """What a stream holds of a range of sequences; with one partition, in their order.

    Args:
        spark: the session.
        connection: where the stream is.
        stream: its name.
        first: the first sequence.
        last: the last one.
        subjects: what to ask the server for; none for everything.
        partitions: how many ranges are read at the same time; None for as many as there are cores.
    """
    reader = (
        spark.read.format("jetstream")
        .schema(ddl(COLUMNS))
        .options(**options_of(connection))
        .option("stream", stream)
        .option("startSequence", str(first))
        .option("endSequence", str(last))
    )
    if subjects:
        reader = reader.option("subjects", ",".join(subjects))
    if partitions is not None:
        reader = reader.option("partitions", str(partitions))
    return reader.load()


def captured_history(spark: SparkSession, path: str, stream: str, first: int, last: int | None) -> DataFrame:
    """What a capture holds of a stream's range of sequences, in any order; see `live_history`."""
    rows = spark.read.parquet(path)
    rows = rows.filter((rows["stream"] == stream) & (rows["sequence"] >= first))
    if last is not None:
        rows = rows.filter(rows["sequence"] <= last)
    return rows.select(*COLUMNS)


def in_order(rows: DataFrame) -> DataFrame:
    """The rows in one partition, in the order of their sequences, sorted on disk where memory does not suffice."""
    return rows.coalesce(1).sortWithinPartitions("sequence")
