"""The package that Spark finds by its name, for the sake of the data source `jetstream` of `pipeline.source`.

Where it is not installed on the driver but shipped (`--py-files`), Spark does not look for it: call `register`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pipeline.source.cores import CORES
from pipeline.source.data_source import JetStreamDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DefaultSource", "register"]

DefaultSource = JetStreamDataSource


def register(spark: SparkSession) -> None:
    """Make the format `jetstream` known to a session; harmless where it is known already."""
    with suppress(AttributeError):  # Spark Connect knows no context
        spark.sparkContext.environment[CORES] = str(spark.sparkContext.defaultParallelism)
    spark.dataSource.register(JetStreamDataSource)
