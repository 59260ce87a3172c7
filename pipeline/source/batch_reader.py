"""Batch read: planned once, then read by tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pipeline.connections import connected
from pipeline.errors import marking
from pipeline.source.planning import plan
from pipeline.source.range_reader import read_range
from pipeline.source.read_options import ReadOptions
from pipeline.source.schema import ReadSchema
from pipeline.source.sequence_range import SequenceRange

__all__ = ["BatchReader"]


class BatchReader(DataSourceReader):
    """Reads what the stream holds when the read is planned.

    Args:
        options: what to read.
        schema: the columns.
    """

    def __init__(self, options: ReadOptions, schema: ReadSchema) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """The ranges that tasks read, one each."""
        with marking():
            return list(asyncio.run(self._plan()))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A task's rows; Spark asks for none with a partition of its own where there is nothing to read."""
        if isinstance(partition, SequenceRange):
            yield from read_range(self._options, self._schema, partition)

    async def _plan(self) -> list[SequenceRange]:
        async with connected(self._options.connection) as link:
            return await plan(link, self._options)
