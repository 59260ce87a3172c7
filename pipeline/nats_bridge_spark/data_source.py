"""Defines the data source `jetstream`, with its readers and writers, and makes it known to a session of Spark."""

import os
import sys
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from nats_bridge_spark.columns import DEFAULT, ddl, read_schema
from nats_bridge_spark.errors import OptionError, marking
from nats_bridge_spark.source.planning import CORES
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
        from nats_bridge_spark.source.range_reader import BatchReader

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
        from nats_bridge_spark.sink.writer import JetStreamStreamWriter, plan_of

        with marking():
            return JetStreamStreamWriter(plan_of(self.options, schema, overwrite, streaming=True))

    def _read(self, schema: StructType) -> tuple[ReadOptions, pa.Schema]:
        options, columns = ReadOptions.of(self.options), read_schema(schema)
        if not options.payload and "data" in columns.names:
            raise OptionError("option payload: false reads no payloads, and the schema has a column data; drop one")
        return options, columns


def register(spark: SparkSession) -> None:
    """Register the format `jetstream` with a session, and the session with the calling thread.

    Repeating it is harmless.

    Spark looks for a format in the session of the thread. A thread that a program started has none, and a session that
    was just derived from another one is not the thread's yet. If Spark has already found the format, registering it
    again would print a warning. On this machine, workers use the Python of this process.
    """
    with suppress(AttributeError):  # Spark Connect has no context, and no session of a thread
        context: Any = spark.sparkContext
        context.environment[CORES] = str(context.defaultParallelism)
        use_this_python(context)
        jvm: Any = spark._jvm
        jvm.org.apache.spark.sql.SparkSession.setActiveSession(spark._jsparkSession)
        java: Any = spark._jsparkSession
        if java.sessionState().dataSourceManager().dataSourceExists(JetStreamDataSource.name()):
            return
    spark.dataSource.register(JetStreamDataSource)


def use_this_python(context: Any) -> None:
    """On this machine, have workers run the Python of this process, unless Spark's settings name one.

    Spark would use the `python3` on PATH, which may lack pyarrow and this package. On a cluster, the nodes' own Python
    is used.
    """
    is_named = "PYSPARK_PYTHON" in os.environ or context.getConf().contains("spark.pyspark.python")
    if context.master.startswith("local") and not is_named:
        context.pythonExec = sys.executable
