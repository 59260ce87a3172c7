"""The Parquet files of a capture: written by Spark or in this process, and read by other jobs."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from nats_bridge_spark.capture.folder import SAVED, Capture, Chunk, capture_in
from nats_bridge_spark.capture.place import Place
from nats_bridge_spark.columns import ARROW, CAPTURED, COLUMNS, ddl
from nats_bridge_spark.errors import OptionError, PipelineError
from nats_bridge_spark.session import run_here
from nats_bridge_spark.source.loop_thread import LoopThread
from nats_bridge_spark.source.range_reader import arriving
from nats_bridge_spark.source.read_options import ReadOptions

_SCHEMA: Final = pa.schema([(name, ARROW[COLUMNS[name]]) for name in CAPTURED])
_ROWS: Final = 10_000  # in a batch that is read, at most
_READ: Final = 8 << 20  # bytes in a batch that is read, about
_GROUP: Final = 32 << 20  # bytes in a group of rows of a file that this process writes, about
MESSAGES: Final = 4_000_000  # in a chunk, about
_BYTES: Final = 2 << 30  # in a chunk, about, before compression
_ROWS_PER_TASK: Final = 100_000
_BYTES_PER_TASK: Final = 32 << 20  # below both, another task, and so another file, is not worth its while


@dataclass(slots=True)
class WrittenChunk:
    """The result of writing a chunk so far."""

    messages: int = 0
    first: int | None = None
    last: int | None = None


def write_chunk(
    spark: SparkSession | None,
    loop: LoopThread,
    options: dict[str, str],
    place: Place,
    path: str,
    written: WrittenChunk,
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
        run_here(loop, _write_here(options, place, path, written))
        return
    reader = spark.read.format("jetstream").schema(ddl(CAPTURED)).options(**options)
    seen = Observation()
    counted = f.count(f.lit(1)).alias("messages")
    frame = reader.load().observe(seen, counted, f.min("sequence").alias("first"), f.max("sequence").alias("last"))
    (
        frame.write.option("compression", "zstd")
        # Payloads hardly repeat: trying a dictionary on them only costs.
        .option("parquet.enable.dictionary#data", "false")
        .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        .parquet(place.uri(path))
    )
    written.messages, written.first, written.last = seen.get["messages"], seen.get["first"], seen.get["last"]


async def _write_here(options: dict[str, str], place: Place, path: str, written: WrittenChunk) -> None:
    """Write one file, as a task of Spark writes it."""
    place.make(path)
    group: list[pa.RecordBatch] = []
    size = 0
    writing: asyncio.Future[None] = asyncio.ensure_future(asyncio.sleep(0))
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
                        await writing
                        # In a thread, so that arriving messages are parsed at the same time.
                        rows = pa.Table.from_batches(group)
                        writing = asyncio.ensure_future(asyncio.to_thread(file.write_table, rows))
                        group, size = [], 0
        finally:
            await writing
        await asyncio.to_thread(file.write_table, pa.Table.from_batches(group, _SCHEMA))


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


def required_capture(place: Place) -> Capture:
    """Return the capture in a directory, or raise an `OptionError` without one, and the errors of `capture_in`."""
    held = capture_in(place)
    if held is None:
        raise OptionError(f"{place}: not a capture: there is no {SAVED} of one; nats-bridge capture makes one")
    return held


def read_capture(spark: SparkSession, place: Place, *, first: int | None, last: int | None) -> DataFrame:
    """Return the messages of the chunks with a range of sequences, with the columns `CAPTURED`.

    Rows of a file are sorted by sequence. Chunks that another run appends meanwhile are not read.

    Raises the errors of `required_capture`.
    """
    schema = ddl(CAPTURED)
    # Folders by name, not the directory: chunks that are appended later stay out.
    folders = [place.uri(chunk.folder) for chunk in _chunks_in(required_capture(place), first, last)]
    return spark.read.schema(schema).parquet(*folders) if folders else spark.createDataFrame([], schema)


def captured_rows(
    place: Place, capture: Capture, columns: Sequence[str], *, first: int | None, last: int | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a capture without Spark, by sequence. Raises the errors of `file_batches`."""
    for path in chunk_files(place, capture, first, last):
        for batch in file_batches(place, path, columns):
            yield within(batch, first, last)


def within(batch: pa.RecordBatch, first: int | None, last: int | None) -> pa.RecordBatch:
    """Return the rows with a range of sequences; None means no bound."""
    found = batch.column("sequence")
    wanted = pc.greater_equal(found, first or 0)
    return batch.filter(wanted if last is None else pc.and_(wanted, pc.less_equal(found, last)))


def chunk_files(place: Place, capture: Capture, first: int | None, last: int | None) -> list[str]:
    """Return the paths of the files with a range of sequences, in order; None means no bound."""
    folders = [chunk.folder for chunk in _chunks_in(capture, first, last)]
    return [f"{folder}/{name}" for folder in folders for name in place.names(folder) if name[0] not in "._"]


def _chunks_in(capture: Capture, first: int | None, last: int | None) -> list[Chunk]:
    low, high = first or 0, capture.last if last is None else last
    return [chunk for chunk in capture.chunks if low <= chunk.last and chunk.first <= high]


def file_batches(place: Place, path: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield a file's rows, in batches that fit into memory.

    Raises:
        PipelineError: it cannot be read.
    """
    try:
        with pq.ParquetFile(place.at(path), filesystem=place.files) as parquet:
            average = bytes_in(parquet.metadata) // max(1, parquet.metadata.num_rows) + 1
            yield from parquet.iter_batches(max(1, min(_ROWS, _READ // average)), columns=columns)
    except pa.ArrowException as error:
        raise PipelineError(f"{place}/{path}: cannot be read as Parquet: {error}") from None


def bytes_in(metadata: pq.FileMetaData) -> int:
    """Return the bytes of a file's values, before compression."""
    return sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))


def first_since(place: Place, capture: Capture, time_ns: int) -> int | None:
    """Return the sequence of the first captured message stored at a time or later; None without one.

    Raises the errors of `file_batches`.
    """
    for batch in captured_rows(place, capture, ("sequence", "time_ns"), first=None, last=None):
        found = pc.min(batch.filter(pc.greater_equal(batch.column("time_ns"), time_ns)).column("sequence")).as_py()
        if found is not None:
            return int(found)
    return None
