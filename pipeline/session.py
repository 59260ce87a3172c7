"""The Spark session of a job."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

from pipeline.errors import SparkMissingError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark_session"]

_INSTALL = "install the extra: pip install 'nats-bridge[spark]'"


def spark_session(name: str, *, master: str | None = None, settings: dict[str, str] | None = None) -> SparkSession:
    """The session of the process, with the data source `jetstream` known to it; a new one where there is none.

    Args:
        name: the application's name.
        master: where to run; None for what `spark-submit` or the environment says, else this machine (`local[*]`).
        settings: Spark settings by name, such as `spark.driver.memory`.

    Raises:
        SparkMissingError: PySpark, pyarrow or Java is not there.
    """
    try:
        import pyarrow  # noqa: F401  # tasks need it; better said here than by a dying worker
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkMissingError(f"{error.name or error} is not installed: {_INSTALL}") from None
    from pyspark_jetstream import register

    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        raise SparkMissingError("Java is not installed: Spark needs Java 17 or newer on the path, or JAVA_HOME")
    # Workers would take whatever `python3` is on the path, which may lack pyarrow and us.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if SparkSession.getActiveSession() is None and "SPARK_ENV_LOADED" not in os.environ:
        builder = builder.master(master or os.environ.get("MASTER") or "local[*]")
        if (master or "local").startswith("local"):
            builder = (
                builder.config("spark.driver.host", "127.0.0.1")
                .config("spark.driver.bindAddress", "127.0.0.1")
                .config("spark.ui.enabled", "false")
            )
    elif master:
        builder = builder.master(master)
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark
