"""Batch read: planned once, then read by tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from nats_bridge_spark.errors import marking
from nats_bridge_spark.source.planning import SequenceRange, planned
from nats_bridge_spark.source.pushdown import is_applied, narrowed
from nats_bridge_spark.source.range_reader import read_range
from nats_bridge_spark.source.read_options import ReadOptions


class BatchReader(DataSourceReader):
    """Reads the messages that the stream has when the read is planned."""

    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        # Not a method of the class: Spark refuses readers with one unless its setting for pushing down is on.
        self.__dict__["pushFilters"] = _PushFilters(self)

    def narrow(self, filters: list[Filter]) -> None:
        """Narrow the read by the filters."""
        with marking():
            self._options = narrowed(self._options, filters)

    def partitions(self) -> list[InputPartition]:
        """Return the ranges that tasks read, one each."""
        with marking():
            return list(asyncio.run(planned(self._options)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's rows. If there is nothing to read, Spark passes a partition of another type."""
        if isinstance(partition, SequenceRange):
            yield from read_range(self._options, self._schema, partition)


class _PushFilters:
    """The hook that Spark calls if `spark.sql.python.filterPushdown.enabled` is on."""

    # Spark checks here whether a reader has it. If the setting is off, it must find the base class's.
    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: BatchReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        """Narrow the read. Return the filters that Spark has to evaluate on the rows."""
        self._reader.narrow(filters)
        return [one for one in filters if not is_applied(one)]
