"""Comparisons by either engine, with findings as plain values: what both must agree on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from nats_bridge_spark.diff import in_process, run
from nats_bridge_spark.diff.request import DiffRequest, SideLocation
from nats_bridge_spark.diff.result import DiffResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Spark: TypeAlias = "SparkSession | None"
"""What a job runs on; None for the process alone."""

ENGINES = [pytest.param("spark", marks=pytest.mark.java), "local"]


@dataclass(frozen=True, slots=True)
class Engine:
    """Compares; with a session on Spark."""

    spark: Spark

    @contextmanager
    def compared(self, left: SideLocation, right: SideLocation, wanted: DiffRequest) -> Iterator[DiffResult[Any]]:
        """Compare."""
        if self.spark is None:
            with in_process.compared(left, right, wanted) as result:
                yield result
        else:
            with run.compared(self.spark, left, right, wanted) as on_spark:
                yield on_spark

    def findings(self, result: DiffResult[Any]) -> list[tuple[Any, ...]]:
        """All findings, by kind, sequences and field."""
        if self.spark is None:
            rows = [tuple(row.values()) for row in result.findings.table().to_pylist()]
        else:
            rows = [tuple(row) for row in result.findings.collect()]
        return sorted(rows, key=lambda row: (row[0], row[2] or 0, row[3] or 0, row[4]))
