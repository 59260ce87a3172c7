"""Rows in this process: stored in files that Arrow maps into memory."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from nats_bridge_spark.diff.rows import Aggregate, Batches, BatchFunction, SortKey
from nats_bridge_spark.errors import OptionError

_AT_ONCE: Final = 64 << 20  # bytes in memory, about

Part = Callable[[], Batches]


@dataclass(frozen=True, slots=True)
class LocalRows:
    """Implements `Rows`.

    Attributes:
        schema: of the rows.
        parts: functions that each give the batches of a part, again and again.
        folder: for files.
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
    """Writes batches to a file, which is complete at the end of the block.

    Args:
        folder: for the file.
        schema: of the batches.

    Attributes:
        batches: the rows, once they are complete.
    """

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
