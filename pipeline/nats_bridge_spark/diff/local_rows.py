"""Rows in this process, stored in files that Arrow maps into memory, and the sides of a comparison as such rows."""

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
from pyarrow.fs import FileSelector, FileType

from nats_bridge.cli.asking import ask
from nats_bridge_spark.capture.folder import SAVED
from nats_bridge_spark.capture.parquet_files import bytes_in, chunk_files, file_batches, required_capture
from nats_bridge_spark.capture.place import Place, place_of
from nats_bridge_spark.connections import connected
from nats_bridge_spark.diff.rows import Aggregate, Batches, BatchFunction
from nats_bridge_spark.diff.sides import COMPARED, SCHEMA, DiffEngine, SideLocation, live_options, require_columns
from nats_bridge_spark.errors import PipelineError
from nats_bridge_spark.progress import Progress
from nats_bridge_spark.session import Size
from nats_bridge_spark.source.planning import planned
from nats_bridge_spark.source.range_reader import arriving_range, iterated
from nats_bridge_spark.source.read_options import ReadOptions
from nats_bridge_spark.source.stream_state import state_of

_AT_ONCE: Final = 64 << 20  # bytes in memory, about
_RANGE: Final = pa.schema([("first", pa.int64()), ("last", pa.int64())])

Part = Callable[[], Batches]


@dataclass(frozen=True, slots=True)
class _LocalRows:
    """Implements `Rows`.

    Attributes:
        parts: functions that each give the batches of a part, again and again.
    """

    schema: pa.Schema
    parts: tuple[Part, ...]
    folder: Path

    def selected(self, *columns: str) -> Self:
        schema = pa.schema([self.schema.field(name) for name in columns])
        return self.mapped(lambda batches: (batch.select(list(columns)) for batch in batches), schema)

    def mapped(self, function: BatchFunction, schema: pa.Schema) -> Self:
        def applied(part: Part) -> Batches:
            return function(part())

        return self._of(schema, *(partial(applied, part) for part in self.parts))

    def digested(self, name: str, columns: Sequence[str]) -> Self:
        others = [field for field in self.schema if field.name not in columns]
        schema = pa.schema([*others, (name, pa.int64())])

        def digest(batches: Batches) -> Batches:
            for batch in batches:
                kept = [batch.column(field.name) for field in others]
                yield pa.RecordBatch.from_arrays([*kept, pa.array(_hashes(batch, columns))], schema=schema)

        return self.mapped(digest, schema)

    def united(self, other: Self) -> Self:
        return self._of(self.schema, *self.parts, *other.parts)

    def where(self, column: str) -> Self:
        return self.mapped(
            lambda batches: (batch.filter(batch.column(column).cast(pa.bool_())) for batch in batches), self.schema
        )

    def having(self, other: Self, columns: Sequence[str]) -> Self:
        wanted, keys = other.selected(*columns).table(), list(columns)

        def had(batches: Batches) -> Batches:
            for table in _tables(batches):
                yield from table.join(wanted, keys, join_type="left semi").select(self.schema.names).to_batches()

        return self.mapped(had, self.schema)

    def first(self, most: int) -> Self:
        found, left = [], most
        for batch in self._batches():
            found.append(batch.slice(0, left))
            left -= found[-1].num_rows
            if not left:
                break
        return self._of(self.schema, partial(iter, found))

    def grouped(self, keys: Sequence[str], values: Sequence[Aggregate]) -> Self:
        columns = [*keys, *dict.fromkeys(column for column, _ in values)]
        table = self.selected(*columns).table().group_by(list(keys)).aggregate(list(values))
        return self._of(table.schema, table.to_batches)

    def together(self, keys: Sequence[str], order: Sequence[str]) -> Self:
        # In parts that fit into memory, unless one key has more rows.
        batches = list(self.kept()._batches())
        parts = sum(batch.nbytes for batch in batches) // _AT_ONCE + 1
        places = [_hashes(batch, keys) % parts if parts > 1 else np.zeros(len(batch)) for batch in batches]

        def sorted_part(number: int) -> Batches:
            some = [batch.filter(pa.array(at == number)) for batch, at in zip(batches, places, strict=True)]
            table = pa.Table.from_batches(some, self.schema)
            yield from table.sort_by([(column, "ascending") for column in order]).to_batches()

        return self._of(self.schema, *(partial(sorted_part, number) for number in range(parts)))

    def kept(self) -> Self:
        _, path = tempfile.mkstemp(dir=self.folder)
        with pa.ipc.new_file(path, self.schema) as writer:
            for batch in filter(len, self._batches()):
                writer.write_batch(batch)
        reader = pa.ipc.open_file(pa.memory_map(path))
        batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        return self._of(self.schema, partial(iter, batches))

    def table(self) -> pa.Table:
        return pa.Table.from_batches(self._batches(), self.schema)

    def write(self, folder: str) -> None:
        place = place_of(folder)
        place.make()
        with pq.ParquetWriter(place.at("part-00000.snappy.parquet"), self.schema, filesystem=place.files) as writer:
            for batch in self._batches():
                writer.write_batch(batch)

    def _batches(self) -> Batches:
        return chain.from_iterable(part() for part in self.parts)

    def _of(self, schema: pa.Schema, *parts: Part) -> Self:
        return type(self)(schema, parts, self.folder)


def _hashes(batch: pa.RecordBatch, columns: Sequence[str]) -> NDArray[np.int64]:
    # Python's hash function has a secret key in each process.
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


@dataclass(frozen=True, slots=True)
class _LocalEngine:
    """Implements `DiffEngine`. A stream is read once into a file."""

    folder: Path

    def opened(self, place: SideLocation, progress: Progress) -> _LocalRows:
        if place.connection is not None:
            return _LocalRows(SCHEMA, (partial(_arriving, place, progress),), self.folder).kept()
        directory = place_of(place.name)
        parts = [partial(_captured, directory, file) for file in _files(place, directory)]
        return _LocalRows(SCHEMA, tuple(parts), self.folder)

    def spread(self, ranges: Sequence[tuple[int, int]], progress: Progress) -> _LocalRows:
        read = 0
        progress.count = lambda: read

        def parts() -> Batches:
            nonlocal read
            for first, last in ranges:
                yield pa.RecordBatch.from_pydict({"first": [first], "last": [last]}, _RANGE)
                read += 2 * (last - first + 1)

        return _LocalRows(_RANGE, (parts,), self.folder)


@contextmanager
def local_engine() -> Iterator[DiffEngine]:
    """Compare in this process. Files are removed when the block ends."""
    with tempfile.TemporaryDirectory(prefix="nats-bridge-diff-") as folder:
        yield _LocalEngine(Path(folder))


def _arriving(place: SideLocation, progress: Progress) -> Batches:
    options, came = ReadOptions.of(live_options(place) | {"partitions": "1"}), 0
    progress.count = lambda: came
    for part in asyncio.run(planned(options)):
        for batch in iterated(arriving_range(options, SCHEMA, part)):
            came += batch.num_rows
            yield batch


def _captured(directory: Place, file: str) -> Batches:
    for batch in file_batches(directory, file, COMPARED):
        columns = [batch.column(field.name).cast(field.type) for field in SCHEMA]
        columns = [pc.fill_null(each, b"") if each.type == pa.binary() else each for each in columns]
        yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _files(place: SideLocation, directory: Place) -> list[str]:
    """Return the paths of the files of a capture, or all that are in a directory of Parquet."""
    if directory.size(SAVED) is not None:
        files = chunk_files(directory, required_capture(directory), place.first, place.last)
    else:
        inside = directory.files.get_file_info(FileSelector(directory.at(), allow_not_found=True, recursive=True))
        paths = sorted(info.path[len(directory.at()) + 1 :] for info in inside if info.type == FileType.File)
        files = [path for path in paths if not any(part[0] in "._" for part in path.split("/"))]
        if not inside:
            raise PipelineError(f"{place.shown}: cannot be read as Parquet: there is no such directory, or it is empty")
    for file in files:
        try:
            schema = pq.read_schema(directory.at(file), filesystem=directory.files)
        except pa.ArrowException as error:
            raise PipelineError(f"{place.shown}: cannot be read as Parquet: {error}") from None
        require_columns(place, {one.name: str(one.type) for one in schema})
    return files


def size_of(places: Sequence[SideLocation]) -> Size:
    """Return the approximate messages and bytes of both sides together, with the errors of `DiffEngine.opened`."""
    sizes = [ask(_size(place)) for place in places]
    return sum(messages for messages, _ in sizes), sum(size for _, size in sizes)


async def _size(place: SideLocation) -> Size:
    if place.connection is not None:
        async with connected(place.connection) as connection:
            state = await state_of(connection, place.name)
            return state.messages, state.size
    directory = place_of(place.name)
    files = _files(place, directory)
    metadata = [pq.read_metadata(directory.at(file), filesystem=directory.files) for file in files]
    return sum(each.num_rows for each in metadata), sum(map(bytes_in, metadata))
