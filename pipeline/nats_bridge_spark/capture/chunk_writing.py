"""A range of sequences becomes Parquet files: by Spark, or in this process."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from nats_bridge_spark.capture.place import Place
from nats_bridge_spark.columns import ARROW, CAPTURED, COLUMNS, ddl
from nats_bridge_spark.engine import run_here
from nats_bridge_spark.source.loop_thread import LoopThread
from nats_bridge_spark.source.range_reader import arriving
from nats_bridge_spark.source.read_options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(slots=True)
class WrittenChunk:
    """The result of writing a chunk so far."""

    messages: int = 0
    first: int | None = None
    last: int | None = None


def write_chunk(
    spark: SparkSession | None, options: dict[str, str], place: Place, path: str, written: WrittenChunk
) -> None:
    """Read a range of a stream and write it to a directory that does not exist yet, sorted by sequence in each file.

    Args:
        spark: a session, each of whose tasks writes a file; None for work in this process.
        options: of the read.
        written: the record of the written messages.

    Raises:
        Exception: Spark's error; `nats_bridge_spark.failures` interprets it.
    """
    if spark is None:
        with LoopThread() as loop:
            run_here(loop, _write_here(options, place, path, written))
    else:
        _write_by_spark(spark, options, place.uri(path), written)


def _write_by_spark(spark: SparkSession, options: dict[str, str], address: str, written: WrittenChunk) -> None:
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    reader = spark.read.format("jetstream").schema(ddl(CAPTURED)).options(**options)
    seen = Observation()
    frame = reader.load().observe(
        seen,
        f.count(f.lit(1)).alias("messages"),
        f.min("sequence").alias("first"),
        f.max("sequence").alias("last"),
    )
    (
        frame.write.option("compression", "zstd")
        # Payloads hardly repeat: trying a dictionary on them only costs.
        .option("parquet.enable.dictionary#data", "false")
        .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        .parquet(address)
    )
    written.messages, written.first, written.last = seen.get["messages"], seen.get["first"], seen.get["last"]


async def _write_here(options: dict[str, str], place: Place, path: str, written: WrittenChunk) -> None:
    """Write one file, as a task of Spark writes it."""
    place.make(path)
    group: list[pa.RecordBatch] = []
    size = 0
    writing: asyncio.Future[None] | None = None
    with pq.ParquetWriter(
        place.at(f"{path}/part-00000.zstd.parquet"),
        _SCHEMA,
        filesystem=place.files,
        compression="zstd",
        # Payloads hardly repeat: trying a dictionary on them only costs.
        use_dictionary=[name for name in CAPTURED if name != "data"],
    ) as file:
        try:
            async with contextlib.aclosing(arriving(ReadOptions.of(options), _SCHEMA)) as batches:
                async for batch in batches:
                    numbers = batch.column("sequence")
                    written.first = numbers[0].as_py() if written.first is None else written.first
                    written.last = numbers[-1].as_py()
                    written.messages += batch.num_rows
                    group.append(batch)
                    size += batch.nbytes
                    if size >= _GROUP:
                        if writing is not None:
                            await writing
                        # In a thread, so that arriving messages are parsed at the same time.
                        rows = pa.Table.from_batches(group)
                        writing = asyncio.ensure_future(asyncio.to_thread(file.write_table, rows))
                        group, size = [], 0
        finally:
            if writing is not None:
                await writing
        await asyncio.to_thread(file.write_table, pa.Table.from_batches(group, _SCHEMA))


_SCHEMA: Final = pa.schema([(name, ARROW[COLUMNS[name]]) for name in CAPTURED])
_GROUP: Final = 32 * 1024**2
"""Bytes in a group of rows of a file that this process writes, about."""
MESSAGES: Final = 4_000_000
"""In a chunk, about."""
_BYTES: Final = 2 * 1024**3
"""In a chunk, about, before compression."""
_ROWS_PER_TASK: Final = 100_000
_BYTES_PER_TASK: Final = 32 * 1024**2
"""Below both, another task, and so another file, is not worth its while."""


def end_of_chunk(first: int, last: int, *, remaining: int, average: int) -> int:
    """Return the last sequence of the next chunk.

    Args:
        remaining: the number of messages from first to last, at most.
        average: bytes of a message.
    """
    rows = max(1, min(MESSAGES, _BYTES // max(1, average)))
    if remaining <= rows:
        return last
    # If messages were removed in between, more sequences have the same number of messages.
    return min(last, first + rows * (last - first + 1) // remaining - 1)


def tasks_for(rows: int, *, average: int, most: int) -> int:
    """Return the number of tasks for a chunk with `rows` messages of `average` bytes, at most `most`."""
    wanted = max(-(-rows // _ROWS_PER_TASK), -(-rows * average // _BYTES_PER_TASK))
    return max(1, min(most, wanted))
