"""Makes the data source known to a session of Spark."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from nats_bridge_spark.data_source import JetStreamDataSource
from nats_bridge_spark.source.shares import CORES
from nats_bridge_spark.worker_python import use_this_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make the format `jetstream` known to a session, and the session to the calling thread; harmless if it is done.

    Spark looks for a format in the session that the thread has: a thread of a program's own has none, and a session
    that was just made of another one is not the thread's yet. Where Spark has found the format already, a second one
    would be a warning. On this machine, workers get the Python of this process.
    """
    with suppress(AttributeError):  # Spark Connect knows no context, and no thread's session
        context: Any = spark.sparkContext
        context.environment[CORES] = str(context.defaultParallelism)
        use_this_python(context)
        jvm: Any = spark._jvm
        jvm.org.apache.spark.sql.SparkSession.setActiveSession(spark._jsparkSession)
        java: Any = spark._jsparkSession
        if java.sessionState().dataSourceManager().dataSourceExists(JetStreamDataSource.name()):
            return
    spark.dataSource.register(JetStreamDataSource)
