"""Reads captures, for other jobs: with Spark, or without it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nats_bridge_spark.capture.folder import Capture, Chunk, capture_in
from nats_bridge_spark.capture.place import Place
from nats_bridge_spark.capture.saved_stream import SAVED
from nats_bridge_spark.columns import CAPTURED, ddl
from nats_bridge_spark.errors import OptionError, PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROWS: Final = 10_000
_BYTES: Final = 8 << 20


def required_capture(place: Place) -> Capture:
    """Return the capture in a directory."""
    held = capture_in(place)
    if held is None:
        raise OptionError(f"{place}: not a capture: there is no {SAVED} of one; nats-bridge capture makes one")
    return held


def read_capture(spark: SparkSession, place: Place, *, first: int | None, last: int | None) -> DataFrame:
    """Return the messages of the chunks with a range of sequences, with the columns `CAPTURED`.

    Rows of a file are sorted by sequence. Chunks that another run appends meanwhile are not read.

    Raises:
        OptionError: the directory has no capture.
        PipelineError: it cannot be read.
    """
    schema = ddl(CAPTURED)
    # Folders by name, not the directory: chunks that are appended later stay out.
    folders = [place.uri(chunk.folder) for chunk in _chunks_in(required_capture(place), first, last)]
    return spark.read.schema(schema).parquet(*folders) if folders else spark.createDataFrame([], schema)


def captured_rows(
    place: Place, capture: Capture, columns: Sequence[str], *, first: int | None, last: int | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a capture without Spark, in the order of their sequences.

    Raises:
        PipelineError: a file cannot be read.
    """
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
            yield from parquet.iter_batches(max(1, min(_ROWS, _BYTES // average)), columns=columns)
    except pa.ArrowException as error:
        raise PipelineError(f"{place}/{path}: cannot be read as Parquet: {error}") from None


def bytes_in(metadata: pq.FileMetaData) -> int:
    """Return the bytes of a file's values, before compression."""
    return sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))


def first_since(place: Place, capture: Capture, time_ns: int) -> int | None:
    """Return the sequence of the first captured message stored at a time or later; None without one.

    Raises:
        PipelineError: a file cannot be read.
    """
    for batch in captured_rows(place, capture, ("sequence", "time_ns"), first=None, last=None):
        found = pc.min(batch.filter(pc.greater_equal(batch.column("time_ns"), time_ns)).column("sequence")).as_py()
        if found is not None:
            return int(found)
    return None
