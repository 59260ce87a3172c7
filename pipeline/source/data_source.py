"""The data source `jetstream`: what Spark asks for readers and writers."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource

from pipeline.columns import DEFAULT, ddl

__all__ = ["JetStreamDataSource"]


class JetStreamDataSource(DataSource):
    """Streams of a NATS system as tables: `spark.read.format("jetstream")`, and the same for streaming and writing."""

    @classmethod
    def name(cls) -> str:
        """The format's short name."""
        return "jetstream"

    def schema(self) -> str:
        """The default columns."""
        return ddl(DEFAULT)
