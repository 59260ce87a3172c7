"""What a comparison needs of an engine: tables of rows that are too many for memory, and a few operations on them.

Theory of operation: all that is specific to comparisons is written once, as functions of Arrow batches. An engine only
brings rows together: one process with files and Arrow's joins (`local_rows`), Spark with its shuffles (`spark_rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, Protocol, Self, TypeAlias

import pyarrow as pa

Batches: TypeAlias = Iterator[pa.RecordBatch]
BatchFunction: TypeAlias = Callable[[Batches], Batches]
Aggregate: TypeAlias = tuple[str, Literal["count", "min", "max", "sum"]]
"""A column, and what is computed of its values that are not null."""
SortKey: TypeAlias = tuple[str, Literal["ascending", "descending"]]


class Rows(Protocol):
    """Rows of one schema, in parts. Operations make other rows; the work is done where they are needed."""

    def selected(self, *columns: str) -> Self:
        """The rows with these columns only."""

    def mapped(self, function: BatchFunction, schema: pa.Schema) -> Self:
        """What a function makes of each part.

        Args:
            function: called with the batches of a part; on Spark in a process elsewhere.
            schema: of the batches that it gives.
        """

    def digested(self, name: str, columns: Sequence[str]) -> Self:
        """The rows with 64 bits of these columns in their place; within one comparison, equal values have equal bits.

        That finds accidents, and not what an attacker forges.
        """

    def united(self, other: Self) -> Self:
        """These rows and those of another table with the same columns."""

    def where(self, column: str) -> Self:
        """The rows in which a number is not 0."""

    def having(self, other: Self, columns: Sequence[str]) -> Self:
        """The rows whose values in these columns some row of another table has, too."""

    def first(self, most: int) -> Self:
        """So many rows at most."""

    def grouped(self, keys: Sequence[str], values: Sequence[Aggregate]) -> Self:
        """One row per value of the keys (one in all without keys): the keys, and `COLUMN_FUNCTION` of each value."""

    def together(self, keys: Sequence[str], order: Sequence[SortKey]) -> Self:
        """The rows in parts of which each has all rows of its keys, sorted."""

    def kept(self) -> Self:
        """The same rows, computed once; they are removed when the comparison ends."""

    def table(self) -> pa.Table:
        """All rows, in memory."""

    def alike(self, table: pa.Table) -> Self:
        """Rows of a table in memory, on the same engine."""

    def write(self, folder: str) -> None:
        """Write the rows as Parquet.

        Args:
            folder: a directory, which is not there yet.

        Raises:
            OptionError: it is, or cannot be written.
        """
