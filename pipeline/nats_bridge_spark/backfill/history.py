"""The history to copy, as rows: from the live stream, or from a capture of it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from nats_bridge.settings import Connection
from nats_bridge_spark.backfill.rows import COLUMNS, SCHEMA, Batches
from nats_bridge_spark.backfill.spark_work import REPORT
from nats_bridge_spark.connections import options_of
from nats_bridge_spark.source.planning import planned
from nats_bridge_spark.source.range_reader import arriving
from nats_bridge_spark.source.read_options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from nats_bridge_spark.capture.folder import Capture


class TaskOfRows(Protocol):
    """Takes the rows of a history."""

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Do it in a task of Spark's; one row (`REPORT`)."""

    async def counts(self, batches: Batches) -> dict[str, int]:
        """Do it; what the report has."""


@dataclass(frozen=True, slots=True)
class LiveHistory:
    """A range of what a stream holds.

    Attributes:
        connection: where the stream is.
        stream: its name.
        first: the first sequence.
        last: the last one.
        subjects: what to ask the server for; none for everything.
    """

    connection: Connection = field(repr=False)
    stream: str
    first: int
    last: int
    subjects: tuple[str, ...] = ()

    def given_to(self, task: TaskOfRows, spark: SparkSession) -> DataFrame:
        """The report (`REPORT`) of one task that gets the rows in the order of their sequences.

        It reads them itself: rows that come to it through Spark cost as much again.
        """
        reading = _ReadByItself(self._options(), task)
        return spark.range(0, 1, 1, 1).mapInArrow(reading, REPORT)

    def rows(self) -> Batches:
        """The rows in the order of their sequences, for a task without Spark."""
        return _rows(self._options())

    def _options(self) -> dict[str, str]:
        options = {
            **options_of(self.connection),
            "stream": self.stream,
            "startSequence": str(self.first),
            "endSequence": str(self.last),
            # What the stream drops before it is read cannot be copied; a sidecar does not fail of it, either.
            "failOnDataLoss": "false",
            "partitions": "1",
        }
        # The option has commas between filters, so none of them may have one; what we select ourselves is as right.
        if self.subjects and not any("," in subject for subject in self.subjects):
            options["subjects"] = ",".join(self.subjects)
        return options


@dataclass(frozen=True, slots=True)
class _ReadByItself:
    """Called by Spark in the one task; whatever rows it brings only start it."""

    options: dict[str, str] = field(repr=False)
    task: TaskOfRows

    def __call__(self, started: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in started:
            pass
        return self.task(_rows(self.options))


async def _rows(options: dict[str, str]) -> AsyncGenerator[pa.RecordBatch, None]:
    read = ReadOptions.of(options)
    for part in await planned(read):
        async with contextlib.aclosing(arriving(read, SCHEMA, part)) as batches:
            async for batch in batches:
                yield batch


@dataclass(frozen=True, slots=True)
class CapturedHistory:
    """A range of what a capture holds.

    Attributes:
        path: its directory.
        capture: what it holds.
        first: the first sequence.
        last: the last one.
    """

    path: str
    capture: Capture
    first: int
    last: int

    def given_to(self, task: TaskOfRows, spark: SparkSession) -> DataFrame:
        """The report (`REPORT`) of one task that gets the rows in the order of their sequences.

        Spark sorts them in one partition, on disk if memory does not suffice.
        """
        from nats_bridge_spark.capture.reading import read_capture

        rows = read_capture(spark, self.path, capture=self.capture, first=self.first, last=self.last).select(*COLUMNS)
        return rows.coalesce(1).sortWithinPartitions("sequence").mapInArrow(task, REPORT)

    def rows(self) -> Batches:
        """The rows in the order of their sequences, for a task without Spark."""
        from nats_bridge_spark.capture.reading import captured_rows

        return captured_rows(self.path, self.capture, COLUMNS, first=self.first, last=self.last)


History = LiveHistory | CapturedHistory
"""Rows with `nats_bridge_spark.backfill.rows.COLUMNS`."""
