"""Rows in this process, stored in files that Arrow maps into memory, and the sides of a comparison as such rows."""

from __future__ import annotations

import contextlib
import glob
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from nats_bridge.cli.asking import ask
from nats_bridge_spark.capture.place import place_of
from nats_bridge_spark.capture.reading import bytes_in, chunk_files, file_batches, is_capture, required_capture
from nats_bridge_spark.connections import connected
from nats_bridge_spark.diff.rows import Aggregate, Batches, BatchFunction, SortKey
from nats_bridge_spark.diff.run import OpenSide
from nats_bridge_spark.diff.sides import COMPARED, SCHEMA, SideLocation, live_options, require_columns
from nats_bridge_spark.engine import Size, run_here
from nats_bridge_spark.errors import OptionError, PipelineError
from nats_bridge_spark.progress import Progress
from nats_bridge_spark.source.loop_thread import LoopThread
from nats_bridge_spark.source.range_reader import arriving
from nats_bridge_spark.source.read_options import ReadOptions
from nats_bridge_spark.source.stream_state import state_of
from nats_bridge_spark.subject_batch import by_subject

_AT_ONCE: Final = 64 << 20  # bytes in memory, about

Part = Callable[[], Batches]


@dataclass(frozen=True, slots=True)
class LocalRows:
    """Implements `Rows`.

    Attributes:
        parts: functions that each give the batches of a part, again and again.
    """

    schema: pa.Schema
    parts: tuple[Part, ...]
    folder: Path

    def selected(self, *columns: str) -> Self:
        """In the order given."""
        schema = pa.schema([self.schema.field(name) for name in columns])
        return self.mapped(lambda batches: (batch.select(list(columns)) for batch in batches), schema)

    def mapped(self, function: BatchFunction, schema: pa.Schema) -> Self:
        """Part by part."""
        return self._of(schema, [partial(_applied, function, part) for part in self.parts])

    def digested(self, name: str, columns: Sequence[str]) -> Self:
        """By Python's hash function, which has a secret key in each process."""
        others = [field for field in self.schema if field.name not in columns]
        schema = pa.schema([*others, (name, pa.int64())])

        def digest(batches: Batches) -> Batches:
            for batch in batches:
                yield pa.RecordBatch.from_arrays(
                    [*(batch.column(field.name) for field in others), pa.array(_hashes(batch, columns))], schema=schema
                )

        return self.mapped(digest, schema)

    def united(self, other: Self) -> Self:
        """One after the other."""
        return self._of(self.schema, [*self.parts, *other.parts])

    def where(self, column: str) -> Self:
        """Batch by batch."""
        return self.mapped(
            lambda batches: (batch.filter(batch.column(column).cast(pa.bool_())) for batch in batches), self.schema
        )

    def having(self, other: Self, columns: Sequence[str]) -> Self:
        """The other table is in memory."""
        wanted, keys = other.selected(*columns).table(), list(columns)

        def had(batches: Batches) -> Batches:
            for table in _tables(batches):
                yield from table.join(wanted, keys, join_type="left semi").select(self.schema.names).to_batches()

        return self.mapped(had, self.schema)

    def first(self, most: int) -> Self:
        """In memory."""
        found, left = [], most
        for batch in self._batches():
            found.append(batch.slice(0, left))
            left -= found[-1].num_rows
            if not left:
                break
        return self._of(self.schema, [partial(iter, found)])

    def grouped(self, keys: Sequence[str], values: Sequence[Aggregate]) -> Self:
        """In memory."""
        columns = [*keys, *dict.fromkeys(column for column, _ in values)]
        return self.alike(self.selected(*columns).table().group_by(list(keys)).aggregate(list(values)))

    def together(self, keys: Sequence[str], order: Sequence[SortKey]) -> Self:
        """In parts that fit into memory, unless one key has more rows."""
        kept = self.kept()
        batches = list(kept._batches())
        parts = sum(batch.nbytes for batch in batches) // _AT_ONCE + 1
        places = [_hashes(batch, keys) % parts if parts > 1 else np.zeros(len(batch)) for batch in batches]

        def sorted_part(number: int) -> Batches:
            some = [batch.filter(pa.array(at == number)) for batch, at in zip(batches, places, strict=True)]
            yield from pa.Table.from_batches(some, self.schema).sort_by(list(order)).to_batches()

        return self._of(self.schema, [partial(sorted_part, number) for number in range(parts)])

    def kept(self) -> Self:
        """In a file."""
        with Spooling(self.folder, self.schema) as spool:
            for batch in self._batches():
                spool.add(batch)
        return self._of(self.schema, [partial(iter, spool.batches)])

    def table(self) -> pa.Table:
        """Return all rows as one table."""
        return pa.Table.from_batches(self._batches(), self.schema)

    def alike(self, table: pa.Table) -> Self:
        """Return the rows of a table."""
        return self._of(table.schema, [table.to_batches])

    def write(self, folder: str) -> None:
        """One file."""
        try:
            Path(folder).mkdir(parents=True)
            with pq.ParquetWriter(Path(folder, "part-00000.snappy.parquet"), self.schema) as writer:
                for batch in self._batches():
                    writer.write_batch(batch)
        except OSError as error:
            raise OptionError(f"--out {folder}: {error.strerror or error}") from None

    def _batches(self) -> Batches:
        return chain.from_iterable(part() for part in self.parts)

    def _of(self, schema: pa.Schema, parts: Sequence[Part]) -> Self:
        return type(self)(schema, tuple(parts), self.folder)


class Spooling:
    """Writes batches to a file, which is complete at the end of the block."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self.batches: list[pa.RecordBatch] = []
        _, self._path = tempfile.mkstemp(dir=folder)
        self._writer = pa.ipc.new_file(self._path, schema)

    def add(self, batch: pa.RecordBatch) -> None:
        """Write a batch.

        Raises:
            OSError: the disk is full.
        """
        if batch.num_rows:
            self._writer.write_batch(batch)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()
        reader = pa.ipc.open_file(pa.memory_map(self._path))
        self.batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]


def _applied(function: BatchFunction, part: Part) -> Batches:
    return function(part())


def _hashes(batch: pa.RecordBatch, columns: Sequence[str]) -> NDArray[np.int64]:
    values: list[list[Any]] = [batch.column(name).to_pylist() for name in columns]
    whole: Iterator[Any] = zip(*values, strict=True) if len(values) > 1 else iter(values[0])
    return np.fromiter(map(hash, whole), np.int64, batch.num_rows)


def _tables(batches: Batches) -> Iterator[pa.Table]:
    """Yield the batches, gathered to tables that are worth a join."""
    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        gathered.append(batch)
        size += batch.nbytes
        if size >= _AT_ONCE:
            yield pa.Table.from_batches(gathered)
            gathered, size = [], 0
    if gathered:
        yield pa.Table.from_batches(gathered)


_KINDS: Final = {
    pa.int64(): "bigint",
    pa.int32(): "int",
    pa.int16(): "smallint",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
}


@contextlib.contextmanager
def local_engine() -> Iterator[OpenSide]:
    """Compare in this process. A stream is read once into a file, and files are removed when the block ends."""
    with tempfile.TemporaryDirectory(prefix="nats-bridge-diff-") as name:
        folder = Path(name)

        def opened(place: SideLocation, progress: Progress) -> LocalRows:
            if place.connection is None:
                parts = [partial(_captured, place, file) for file in _files(place)]
                return LocalRows(SCHEMA, tuple(parts), folder)
            with Spooling(folder, SCHEMA) as spool, LoopThread() as loop:
                run_here(loop, _read(place, spool, progress))
            return LocalRows(SCHEMA, (partial(iter, spool.batches),), folder)

        yield opened


async def _read(place: SideLocation, spool: Spooling, progress: Progress) -> None:
    options = ReadOptions.of(live_options(place) | {"partitions": "1"})
    came = 0
    progress.count = lambda: came
    async with contextlib.aclosing(arriving(options, SCHEMA)) as batches:
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
    """Return the files of a capture, or all that are in a directory of Parquet."""
    directory = place_of(None, place.name)
    if is_capture(directory):
        files = chunk_files(directory, required_capture(directory), place.first, place.last)
    else:
        # Spark's addresses may be patterns.
        found = sorted(map(Path, glob.glob(str(directory))))  # noqa: PTH207  # of an absolute pattern
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
        UnreachableError, PipelineError: as for `OpenSide`.
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
