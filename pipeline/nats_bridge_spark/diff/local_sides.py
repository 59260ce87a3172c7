"""Opens the sides of a comparison in this process. A stream is read once, into a file."""

from __future__ import annotations

import contextlib
import glob
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nats_bridge.cli.asking import ask
from nats_bridge_spark.capture.place import place_of
from nats_bridge_spark.capture.reading import bytes_in, capture_at, chunk_files, file_batches, is_capture
from nats_bridge_spark.connections import connected
from nats_bridge_spark.diff.local_rows import LocalRows, Spooling
from nats_bridge_spark.diff.request import SideLocation
from nats_bridge_spark.diff.rows import Batches
from nats_bridge_spark.diff.sides import COMPARED, SCHEMA, live_options, require_columns
from nats_bridge_spark.engine import Size, run_here
from nats_bridge_spark.errors import PipelineError
from nats_bridge_spark.progress import Progress
from nats_bridge_spark.source.loop_thread import LoopThread
from nats_bridge_spark.source.planning import planned
from nats_bridge_spark.source.range_reader import arriving
from nats_bridge_spark.source.read_options import ReadOptions
from nats_bridge_spark.source.stream_state import state_of
from nats_bridge_spark.subject_batch import by_subject

_KINDS: Final = {
    pa.int64(): "bigint",
    pa.int32(): "int",
    pa.int16(): "smallint",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
}


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """Implements `DiffEngine`.

    Attributes:
        folder: for files.
    """

    folder: Path

    def rows(self, place: SideLocation, progress: Progress) -> LocalRows:
        """A stream is read from its server once; a capture is read in place."""
        if place.connection is None:
            parts = [partial(_captured, place, file) for file in _files(place)]
            return LocalRows(SCHEMA, tuple(parts), self.folder)
        with Spooling(self.folder, SCHEMA) as spool, LoopThread() as loop:
            run_here(loop, _read(place, spool, progress))
        return LocalRows(SCHEMA, (partial(iter, spool.batches),), self.folder)


@contextlib.contextmanager
def local_engine() -> Iterator[LocalEngine]:
    """Compare in this process. Its files are removed when the block ends."""
    with tempfile.TemporaryDirectory(prefix="nats-bridge-diff-") as folder:
        yield LocalEngine(Path(folder))


async def _read(place: SideLocation, spool: Spooling, progress: Progress) -> None:
    options = ReadOptions.of(live_options(place) | {"partitions": "1"})
    came = 0
    progress.count = lambda: came
    for part in await planned(options):
        async with contextlib.aclosing(arriving(options, SCHEMA, part)) as batches:
            async for batch in batches:
                spool.add(batch)
                came += batch.num_rows


def _captured(place: SideLocation, file: str) -> Batches:
    for batch in file_batches(file, COMPARED):
        columns = [batch.column(field.name).cast(field.type) for field in SCHEMA]
        columns = [pc.fill_null(each, b"") if each.type == pa.binary() else each for each in columns]
        yield _wanted(place, pa.RecordBatch.from_arrays(columns, schema=SCHEMA))


def _wanted(place: SideLocation, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows of a batch that lie within the bounds, and have one of the subjects."""
    if place.first is not None:
        batch = batch.filter(pc.greater_equal(batch.column("sequence"), place.first))
    if place.last is not None:
        batch = batch.filter(pc.less_equal(batch.column("sequence"), place.last))
    if place.subjects:
        batch = batch.filter(by_subject(place.selects, batch.column("subject"), pa.bool_()))
    return batch


def _files(place: SideLocation) -> list[str]:
    """Return the files of a capture, or all that are in a directory of Parquet.

    Raises:
        PipelineError: the directory does not exist, or its contents cannot be read.
        SchemaError: the files lack a column, or have it in another type.
    """
    if is_capture(None, place.name):
        files = chunk_files(place.name, capture_at(None, place.name), place.first, place.last)
    else:
        # Spark's addresses may be patterns.
        found = sorted(map(Path, glob.glob(str(place_of(None, place.name)))))  # noqa: PTH207  # of an absolute pattern
        if not found:
            raise PipelineError(f"{place.shown}: cannot be read as Parquet: there is no such file or directory")
        inside = ((one, file) for one in found for file in ([one] if one.is_file() else sorted(one.rglob("*"))))
        files = [
            str(file)
            for one, file in inside
            if file.is_file() and not any(part[0] in "._" for part in file.relative_to(one).parts)
        ]
    for file in files:
        try:
            schema = pq.read_schema(file)
        except pa.ArrowException as error:
            raise PipelineError(f"{place.shown}: cannot be read as Parquet: {error}") from None
        require_columns(place, {one.name: _KINDS.get(one.type, str(one.type)) for one in schema})
    return files


def size_of(places: Sequence[SideLocation]) -> Size:
    """Return the approximate messages and bytes of both sides together, in streams or files.

    Raises:
        UnreachableError, PipelineError: as for `LocalEngine.rows`.
    """
    sizes = [ask(_live_size(place)) if place.connection else _captured_size(place) for place in places]
    return sum(messages for messages, _ in sizes), sum(size for _, size in sizes)


async def _live_size(place: SideLocation) -> Size:
    assert place.connection is not None
    async with connected(place.connection) as connection:
        state = await state_of(connection, place.name)
        return state.messages, state.size


def _captured_size(place: SideLocation) -> Size:
    metadata = [pq.read_metadata(file) for file in _files(place)]
    return sum(each.num_rows for each in metadata), sum(map(bytes_in, metadata))
