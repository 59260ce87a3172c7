"""Rows in a file: written once, then read as often as needed and in any order, without being held in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_ROWS: Final = 65_536
_BYTES: Final = 16 << 20


class Spool:
    """A file of Arrow's, which is mapped into memory when it is complete.

    Args:
        path: the file, which is not there yet.
        schema: of the rows.

    Attributes:
        schema: the same.
        batches: the rows, once it is complete.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.schema = schema
        self.batches: list[pa.RecordBatch] = []
        self._path = str(path)
        self._file = pa.OSFile(self._path, "wb")
        self._writer = pa.ipc.new_file(self._file, schema)
        self._starts: NDArray[np.int64] = np.zeros(1, np.int64)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def add(self, batch: pa.RecordBatch) -> None:
        """Write rows.

        Raises:
            OSError: the disk is full.
        """
        if batch.num_rows:
            self._writer.write_batch(batch)

    def complete(self) -> None:
        """End writing; from now on the rows can be read."""
        self._writer.close()
        self._file.close()
        reader = pa.ipc.open_file(pa.memory_map(self._path))
        self.batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        self._starts = np.cumsum([0, *(batch.num_rows for batch in self.batches)], dtype=np.int64)

    def table(self) -> pa.Table:
        """All rows."""
        return pa.Table.from_batches(self.batches, self.schema)

    def taken(self, rows: NDArray[np.int64]) -> pa.RecordBatch:
        """Some rows, in the order in which they are asked for.

        Args:
            rows: their indexes; few enough for memory (`portions`).
        """
        if not len(rows):
            return pa.RecordBatch.from_pylist([], self.schema)
        batch = np.searchsorted(self._starts, rows, side="right") - 1
        order = None
        if np.any(batch[1:] < batch[:-1]):
            order = np.argsort(batch, kind="stable")
            rows, batch = rows[order], batch[order]
        cuts = np.flatnonzero(np.diff(batch)) + 1
        numbers = batch[[0, *cuts]]
        parts = [
            _part(self.batches[number], some - self._starts[number])
            for number, some in zip(numbers, np.split(rows, cuts), strict=True)
        ]
        found = parts[0] if len(parts) == 1 else pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
        if order is None:
            return found
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        return found.take(pa.array(places))


def _part(batch: pa.RecordBatch, rows: NDArray[np.int64]) -> pa.RecordBatch:
    if len(rows) == 1 or np.all(np.diff(rows) == 1):
        return batch.slice(rows[0], len(rows))
    return batch.take(pa.array(rows))


def portions(sizes: NDArray[np.int64]) -> Iterator[slice]:
    """Cuts things into portions that memory can hold, one at least in each.

    Args:
        sizes: the bytes of each.
    """
    ends = np.cumsum(sizes)
    start = 0
    while start < len(ends):
        before = ends[start - 1] if start else 0
        end = int(np.searchsorted(ends, before + _BYTES, side="right"))
        end = max(start + 1, min(end, start + _ROWS))
        yield slice(start, end)
        start = end
