"""Defines the interface of a comparison to its engine: tables too large for memory, and a few operations on them.

Theory of operation. Everything specific to comparisons is written once, as functions of Arrow batches. An engine only
joins rows: one process with files and Arrow's joins (`local_rows`), or Spark with its shuffles (`spark_rows`).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, Protocol, Self, TypeAlias

import pyarrow as pa

Batches: TypeAlias = Iterator[pa.RecordBatch]
BatchFunction: TypeAlias = Callable[[Batches], Batches]
Aggregate: TypeAlias = tuple[str, Literal["count", "min", "max", "sum"]]
"""A column, and the aggregate of its non-null values."""


class Rows(Protocol):
    """Rows of one schema, in parts. Operations return other rows; the work is done where the parts are."""

    def selected(self, *columns: str) -> Self:
        """Return the rows with these columns only."""

    def mapped(self, function: BatchFunction, schema: pa.Schema) -> Self:
        """Return the results of a function for each part."""

    def digested(self, name: str, columns: Sequence[str]) -> Self:
        """Return the rows with 64 bits in place of these columns. In a comparison, equal values have equal bits.

        The bits find accidental differences, not those forged by an attacker.
        """

    def united(self, other: Self) -> Self:
        """Return these rows and those of another table with the same columns."""

    def where(self, column: str) -> Self:
        """Return the rows in which a number is not 0."""

    def having(self, other: Self, columns: Sequence[str]) -> Self:
        """Return the rows whose values in these columns also appear in another table."""

    def first(self, most: int) -> Self:
        """Return at most `most` rows."""

    def grouped(self, keys: Sequence[str], values: Sequence[Aggregate]) -> Self:
        """One row per value of the keys (one in all without keys): the keys, and `COLUMN_FUNCTION` of each value."""

    def together(self, keys: Sequence[str], order: Sequence[str]) -> Self:
        """Return the rows in parts sorted by the columns of `order`, each with all rows of its keys."""

    def kept(self) -> Self:
        """Return rows that are computed only once, and removed when the comparison ends."""

    def table(self) -> pa.Table:
        """Return all rows, in memory."""

    def write(self, folder: str) -> None:
        """Write the rows as Parquet into a directory that is empty or does not exist."""
