"""Defines the data source `jetstream`, with its readers and writers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from nats_bridge_spark.columns import DEFAULT, ddl
from nats_bridge_spark.errors import OptionError, marking

if TYPE_CHECKING:
    import pyarrow as pa

    from nats_bridge_spark.source.read_options import ReadOptions


class JetStreamDataSource(DataSource):
    """Streams of a NATS system as tables: `spark.read.format("jetstream")`, and the same for streaming and writing."""

    @classmethod
    def name(cls) -> str:
        """Return the format's short name."""
        return "jetstream"

    def schema(self) -> str:
        """Return the default columns."""
        has_payload = self.options.get("payload", "").lower() != "false"
        return ddl(tuple(name for name in DEFAULT if has_payload or name != "data"))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the planner and reader of a batch."""
        from nats_bridge_spark.source.batch_reader import BatchReader

        with marking():
            return BatchReader(*self._read(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader that follows a stream, batch after batch."""
        from nats_bridge_spark.source.stream_reader import StreamReader

        with marking():
            return StreamReader(*self._read(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a DataFrame; see `nats_bridge_spark.sink`."""
        from nats_bridge_spark.sink.writer import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Return the writer of micro-batches; see `nats_bridge_spark.sink`."""
        from nats_bridge_spark.sink.writer import stream_writer

        return stream_writer(self.options, schema, overwrite)

    def _read(self, schema: StructType) -> tuple[ReadOptions, pa.Schema]:
        from nats_bridge_spark.source.read_options import ReadOptions
        from nats_bridge_spark.source.schema import read_schema

        options, columns = ReadOptions.of(self.options), read_schema(schema)
        if not options.payload and "data" in columns.names:
            raise OptionError("option payload: false reads no payloads, and the schema has a column data; drop one")
        return options, columns
