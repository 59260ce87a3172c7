"""Makes the data source known to a session of Spark."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from nats_bridge_spark.data_source import JetStreamDataSource
from nats_bridge_spark.source.shares import CORES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
