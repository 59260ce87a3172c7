"""The Parquet files of captures on this machine, read without Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from nats_bridge_spark.capture.manifest import Capture
from nats_bridge_spark.capture.place import place_of
from nats_bridge_spark.errors import PipelineError
from nats_bridge_spark.spool import Spool, portions

_ROWS: Final = 10_000
_BYTES: Final = 8 << 20


def chunk_files(path: str, capture: Capture, first: int | None, last: int | None) -> list[str]:
    """The files of the chunks that a range of sequences is in; None for no bound."""
    place = place_of(None, path)
    low, high = first or 0, capture.last if last is None else last
    wanted = [chunk.folder for chunk in capture.chunks if chunk.folder and low <= chunk.last and chunk.first <= high]
    return [f"{place}/{folder}/{name}" for folder in wanted for name in place.names(folder) if name[0] not in "._"]


def file_batches(file: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """A file's rows, so many at once as memory holds easily.

    Raises:
        PipelineError: it cannot be read.
    """
    try:
        with pq.ParquetFile(file) as parquet:
            average = bytes_in(parquet.metadata) // max(1, parquet.metadata.num_rows) + 1
            yield from parquet.iter_batches(max(1, min(_ROWS, _BYTES // average)), columns=columns)
    except pa.ArrowException as error:
        raise PipelineError(f"{file}: cannot be read as Parquet: {error}") from None


def bytes_in(metadata: pq.FileMetaData) -> int:
    """The bytes of a file's values, before compression."""
    return sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))


def captured_rows(
    path: str, capture: Capture, columns: Sequence[str], *, first: int | None, last: int | None
) -> Iterator[pa.RecordBatch]:
    """The rows of a capture in the order of their sequences, as Spark would sort them.

    Args:
        path: the capture's directory.
        capture: what it holds.
        columns: the ones wanted, with `sequence`.
        first: the first sequence wanted; None for all from the beginning.
        last: the last sequence wanted; None for all to the end.

    Raises:
        PipelineError: a file cannot be read.
    """
    files = chunk_files(path, capture, first, last)
    numbers = [batch.column(0).to_numpy() for file in files for batch in file_batches(file, ["sequence"])]
    if not numbers:
        return
    sequences = np.concatenate(numbers)
    high = capture.last if last is None else last
    rows: Iterator[pa.RecordBatch] = (batch for file in files for batch in file_batches(file, columns))
    if np.any(sequences[1:] < sequences[:-1]):
        rows = _sorted(rows, np.argsort(sequences, kind="stable"))
    for batch in rows:
        found = batch.column("sequence")
        yield batch.filter(pc.and_(pc.greater_equal(found, first or 0), pc.less_equal(found, high)))


def _sorted(rows: Iterator[pa.RecordBatch], order: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    with tempfile.TemporaryDirectory(prefix="nats-bridge-rows-") as folder:
        begin = next(rows)
        spool, size = Spool(Path(folder, "rows"), begin.schema), begin.nbytes
        spool.add(begin)
        for batch in rows:
            spool.add(batch)
            size += batch.nbytes
        spool.complete()
        for some in portions(np.full(len(order), size // len(order) + 1)):
            yield spool.taken(order[some])
