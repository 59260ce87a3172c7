"""Comparisons by either engine, with findings as plain values: what both must agree on."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pytest

from nats_bridge_spark.diff import run
from nats_bridge_spark.diff.comparing import Comparison
from nats_bridge_spark.diff.local_rows import _LocalRows, local_engine
from nats_bridge_spark.diff.rows import Rows
from nats_bridge_spark.diff.run import DiffResult
from nats_bridge_spark.diff.sides import SideLocation
from nats_bridge_spark.diff.spark_rows import _SparkRows, spark_engine
from nats_bridge_spark.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Spark: TypeAlias = "SparkSession | None"
"""What a job runs on; None for the process alone."""

ENGINES = [pytest.param("spark", marks=pytest.mark.java), "local"]


@dataclass(frozen=True, slots=True)
class Comparing:
    """Compares; with a session on Spark."""

    spark: Spark

    @contextmanager
    def compared(
        self, left: SideLocation, right: SideLocation, wanted: Comparison, allowed: frozenset[str] = frozenset()
    ) -> Iterator[DiffResult]:
        """Compare."""
        with local_engine() if self.spark is None else spark_engine(self.spark) as engine:
            yield run.compared(engine, left, right, wanted, allowed, Progress("diff"))

    @contextmanager
    def rows(self, table: pa.Table) -> Iterator[Rows]:
        """Rows of a table."""
        with tempfile.TemporaryDirectory() as folder:
            if self.spark is None:
                yield _LocalRows(table.schema, (table.to_batches,), Path(folder))
            else:
                yield _SparkRows(self.spark.createDataFrame(table), [])

    def findings(self, result: DiffResult) -> list[tuple[Any, ...]]:
        """All findings, by kind, sequences and field."""
        rows = [tuple(row.values()) for row in result.findings.table().to_pylist()]
        return sorted(rows, key=lambda row: (row[0], row[2] or 0, row[3] or 0, row[4]))
