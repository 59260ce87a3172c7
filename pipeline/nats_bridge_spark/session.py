"""Makes the Spark session of a job: checks its needs, starts it, and cleans up.

`spark_session` is for programs and notebooks; `job_session` is for commands, which also want quiet and short errors.
Under `spark-submit` (Spark has started us, and said where) its settings stand, and nothing is set but what is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click

from nats_bridge.cli.asking import quiet_logs
from nats_bridge_spark.errors import JobFailedError, JobStoppedError, SparkMissingError
from nats_bridge_spark.failures import failure, meaning_of_start
from nats_bridge_spark.java import require_java
from nats_bridge_spark.stopping import listening

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_INSTALL: Final = "pip install nats-bridge-spark"
_DEFAULTS: Final = {
    "spark.ui.enabled": "false",
}
# Spark's shells, which is what it takes a Python program for, set this themselves where nothing is said.
_FROM_THE_START: Final = {"spark.ui.showConsoleProgress": "false"}
_ON_THIS_MACHINE: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_PATIENCE: Final = 30.0
"""Seconds in which Java must end after its work is over; then it is killed."""


def spark_session(name: str, *, master: str | None = None, settings: Mapping[str, str] | None = None) -> SparkSession:
    """The session of the process, with the data source `jetstream` known to it; a new one where there is none.

    A local master is reached on loopback only, and shows no web page, unless settings say otherwise.

    Args:
        name: the application's name.
        master: where to run; None for what `spark-submit`, `spark-defaults.conf` or `MASTER` says, else this machine
            (`local[*]`).
        settings: Spark settings by name, such as `spark.driver.memory`; of an existing session they can
            change only what Spark lets change.

    Raises:
        SparkMissingError: PySpark, pyarrow or Java is not there, or cannot be used.
    """
    return _session(name, master, dict(settings or {}), None)


@contextmanager
def job_session(
    name: str, *, master: str | None = None, settings: Mapping[str, str] | None = None, quiet: bool = True
) -> Iterator[SparkSession]:
    """The session of one command, as `spark_session` makes it; nothing of it runs on afterwards.

    Unless `quiet`, a line on stderr says that Spark starts, which takes seconds in which there is no progress.

    An existing session is used, and left as it is. The sidecar's modules log nothing. Java's own words
    (warnings, stack traces) go to a file, which is named when the job fails and removed when it does not; under
    `spark-submit` they go where Spark's logging sends them.

    Raises:
        SparkMissingError: PySpark, pyarrow or Java is not there, or cannot be used.
        PipelineError: whatever went wrong inside of the block, in one or two lines (`failures.failure`).
        JobStoppedError: SIGINT or SIGTERM came.
    """
    place = Path(tempfile.mkdtemp(prefix="nats-bridge-spark-"))
    log = place / "spark.log"
    is_ours = not _is_there()
    keeps_log = False

    def stopped(number: int, _: object) -> None:
        raise JobStoppedError(f"{name}: stopped before it had begun", exit_code=128 + number)

    if is_ours and not quiet:
        click.echo(f"{name}: starting Spark", err=True)
    try:
        with log.open("wb") as stream, listening(stopped) as again, quiet_logs():
            spark = _session(name, master, dict(settings or {}), stream)
            again()  # Spark has put a handler of its own in place of ours
            yield spark
    except JobStoppedError:
        raise
    except Exception as error:
        short = failure(name, error)
        # What we say ourselves needs no log of Spark's to be understood.
        if short is error:
            raise
        if isinstance(short, JobFailedError) and log.stat().st_size:
            keeps_log = True
            short = JobFailedError(f"{short}\nSpark's own log: {log}")
        raise short from error
    finally:
        if is_ours:
            _end()
        if not keeps_log:
            shutil.rmtree(place, ignore_errors=True)


def require_libraries() -> None:
    """Check that what the jobs import is installed, before one of them imports it.

    Raises:
        SparkMissingError: PySpark or pyarrow is not there.
    """
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        raise SparkMissingError(f"{error.name or error} is not installed: {_INSTALL}") from None


def _session(name: str, master: str | None, settings: dict[str, str], log: IO[bytes] | None) -> SparkSession:
    require_libraries()
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    from nats_bridge_spark.registering import register

    if master:
        settings["spark.master"] = master
    if "spark.pyspark.python" not in settings:
        # Workers would take whatever `python3` is on the path, which may lack pyarrow and us.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if not _is_there():
        if SparkContext._gateway is None:
            SparkContext._ensure_initialized(gateway=_started_java(settings, log))
        # What spark-submit, spark-defaults.conf and the environment say is known now.
        conf = SparkConf()
        for key, value in settings.items():
            conf.set(key, value)
        is_local = (conf.get("spark.master") or "local").startswith("local")
        defaults = {**_DEFAULTS, **_ON_THIS_MACHINE} if is_local else _DEFAULTS
        for key, value in defaults.items():
            conf.setIfMissing(key, value)
        if not is_submitted():
            conf.setIfMissing("spark.master", "local[*]")
            conf.setAppName(name)
        spark = SparkSession.builder.config(conf=conf).getOrCreate()
    else:
        builder = SparkSession.builder
        for key, value in settings.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
    register(spark)
    return spark


def is_submitted() -> bool:
    """Whether Spark started this process (`spark-submit`), not the reverse."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _started_java(settings: dict[str, str], log: IO[bytes] | None) -> Any:
    """A JVM with Spark, or the one that has started us."""
    from pyspark import SparkConf
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    launch: Callable[..., Any] = launch_gateway

    conf = SparkConf(loadDefaults=False)
    if is_submitted():
        return launch(conf)
    require_java()
    for key, value in {**_FROM_THE_START, **settings}.items():
        conf.set(key, value)
    try:
        return launch(conf, {} if log is None else {"stdout": log, "stderr": log})
    except PySparkRuntimeError:
        # Without a log Java has said it on stderr, where everybody can read it.
        said = "" if log is None else Path(log.name).read_text("utf-8", "replace")
        raise SparkMissingError(meaning_of_start(said)) from None


def _is_there() -> bool:
    """Whether this process has a session, in whatever thread."""
    try:
        from pyspark import SparkContext
    except ImportError:
        return False
    return SparkContext._active_spark_context is not None


def _end() -> None:
    """End the session, and the JVM if it is ours."""
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ImportError:
        return
    gateway: Any = SparkContext._gateway
    with suppress(Exception):  # Java may be gone
        context = SparkContext._active_spark_context
        if context is not None:
            SparkSession.builder.getOrCreate().stop()
    if gateway is None or is_submitted():
        return
    with suppress(Exception):
        gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None
    process: subprocess.Popen[bytes] = gateway.proc
    if process.stdin:
        process.stdin.close()  # the sign to end
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
