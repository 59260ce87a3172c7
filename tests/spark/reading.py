"""Reads of the data source without Spark around them: planned and read as tasks do it, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from nats_bridge_spark.columns import DEFAULT, read_schema
from nats_bridge_spark.source.range_reader import BatchReader
from nats_bridge_spark.source.read_options import ReadOptions

TYPES: dict[str, DataType] = {
    "stream": StringType(),
    "subject": StringType(),
    "sequence": LongType(),
    "time": TimestampType(),
    "time_ns": LongType(),
    "headers": ArrayType(StructType([StructField("name", StringType()), StructField("value", StringType())])),
    "header_block": BinaryType(),
    "data": BinaryType(),
}


def spark_schema(*names: str, **types: DataType) -> StructType:
    """A schema with these columns, each of its own type unless another is given."""
    return StructType([StructField(name, types.get(name, TYPES.get(name, StringType()))) for name in names])


class Read:
    """One batch read: planned once, then read part by part."""

    def __init__(self, url: str, stream: str, columns: StructType | None = None, **options: Any) -> None:
        named = {"stream": stream, **options} if stream else options
        given = {"servers": url, **{name: str(value) for name, value in named.items()}}
        self.reader = BatchReader(ReadOptions.of(given), read_schema(columns or spark_schema(*DEFAULT)))
        self.parts: list[Any] = []

    async def plan(self) -> Read:
        self.parts = await asyncio.to_thread(self.reader.partitions)
        return self

    def batches(self) -> Iterator[pa.RecordBatch]:
        """What the tasks give, one after the other."""
        for part in self.parts:
            yield from self.reader.read(part)

    async def rows(self) -> list[dict[str, Any]]:
        """All rows."""
        if not self.parts:
            await self.plan()
        return await asyncio.to_thread(lambda: [row for batch in self.batches() for row in batch.to_pylist()])

    async def sequences(self) -> list[int]:
        """Of all rows, in the order in which they come."""
        return [row["sequence"] for row in await self.rows()]
