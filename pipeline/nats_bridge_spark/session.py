"""Runs a job on its engine: in this process, which starts no Java, or in a Spark session.

`spark_session` is for programs and notebooks. The others are for commands, which also need quiet and short errors.
Under `spark-submit` (which started this process) its settings apply, and only missing ones are set.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

import click

from nats_bridge.cli.asking import quiet_logs
from nats_bridge.errors import BridgeError
from nats_bridge_spark.errors import JobFailedError, JobStoppedError, SparkMissingError, own_error
from nats_bridge_spark.failures import failure, meaning_of_start
from nats_bridge_spark.progress import listening
from nats_bridge_spark.source.loop_thread import LoopThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_Result = TypeVar("_Result")

Engine: TypeAlias = Literal["auto", "spark", "local"]

Size: TypeAlias = tuple[int, int]
"""Messages, and their bytes."""

_LARGE: Final[Size] = (10_000_000, 4 << 30)
"""For either, `auto` chooses Spark."""
_DEFAULTS: Final = {"spark.ui.enabled": "false"}
# Spark treats a Python program like its shells, which set this themselves by default.
_FROM_THE_START: Final = {"spark.ui.showConsoleProgress": "false"}
_ON_THIS_MACHINE: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_PATIENCE: Final = 30.0
"""Seconds for Java to end after its work; then it is killed."""


def spark_session(
    name: str, *, settings: Mapping[str, str] | None = None, log: IO[bytes] | None = None
) -> SparkSession:
    """Return the session of the process, with the data source `jetstream` registered; a new one if there is none.

    A local master is reached on loopback only, and has no web page, unless settings say otherwise.

    Args:
        settings: Spark settings by name, such as `spark.master` and `spark.driver.memory`; in an existing session they
            can only change what Spark allows.
        log: a file for the output of a new Java; None for stderr.

    Raises:
        SparkMissingError: PySpark, pyarrow or Java is missing, or cannot be used.
    """
    require_libraries()
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    from nats_bridge_spark.data_source import register

    wanted: dict[str, Any] = dict(settings or {})
    if "spark.pyspark.python" not in wanted:
        # Otherwise workers would use any `python3` on the path, which may lack pyarrow and this package.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    if not _is_there():
        if SparkContext._gateway is None:
            SparkContext._ensure_initialized(gateway=_started_java(wanted, log))
        conf = SparkConf()  # the settings of spark-submit, spark-defaults.conf and the environment are known now
        is_local = (wanted.get("spark.master") or conf.get("spark.master", "")).startswith("local")
        for key, value in (_DEFAULTS | _ON_THIS_MACHINE if is_local else _DEFAULTS).items():
            conf.setIfMissing(key, value)
        builder = builder.config(conf=conf)
        if not is_submitted():
            builder = builder.appName(name)
    spark = builder.config(map=wanted).getOrCreate()
    register(spark)
    return spark


@contextmanager
def engine_session(
    name: str, engine: Engine, settings: Mapping[str, str], size: Callable[[], Size], defaults: Mapping[str, str]
) -> Iterator[SparkSession | None]:
    """Run the job of a command, and provide its session; None for work in this process.

    An existing session is used and kept. Nothing of a new one runs on afterwards. Java's own output (warnings, stack
    traces) goes to a file, which is named if the job fails and removed otherwise; under `spark-submit` it goes where
    Spark's logging sends it.

    Args:
        engine: the user's choice; with `auto`, Spark settings and `spark-submit` also count as a choice.
        defaults: Spark settings that the user's replace.

    Raises the errors of `spark_session` and `reporting`.
    """
    if engine == "auto" and not settings and not is_submitted():
        is_large = any(number >= most for number, most in zip(size(), _LARGE, strict=True))
        engine = "spark" if is_large else "local"
    if engine == "local":
        with reporting(name):
            yield None
        return
    require_libraries()
    click.echo(f"{name}: starting Spark", err=True)  # which takes some seconds without progress
    is_ours = not _is_there()
    with tempfile.NamedTemporaryFile(prefix="nats-bridge-spark-", suffix=".log", delete=False) as log:
        try:
            with reporting(name, log):
                spark = spark_session(name, settings={**defaults, **settings}, log=log)
                with listening(partial(_stopped, name)):  # again, because Spark has replaced the handler
                    yield spark
        finally:
            if is_ours:
                _end()
            if log.name not in str(sys.exception()):
                Path(log.name).unlink()


def run_here(loop: LoopThread, work: Coroutine[Any, Any, _Result]) -> _Result:
    """Do work in this process that is otherwise a task's, and raise a `PipelineError` as the task would."""
    try:
        return loop.run(work)
    except BridgeError as error:
        raise own_error(error) from None


@contextmanager
def reporting(name: str, log: IO[bytes] | None = None) -> Iterator[None]:
    """Run the job of a command: its errors are short, a signal ends it, and the sidecar's modules log nothing.

    Args:
        log: Spark's own log, which is named if the job fails for a reason of its environment.

    Raises:
        PipelineError: any error inside the block, in one or two lines (`failures.failure`).
        JobStoppedError: SIGINT or SIGTERM came.
    """
    try:
        with listening(partial(_stopped, name)), quiet_logs():
            yield
    except Exception as error:
        short = failure(name, error)
        if short is error:  # this package's own errors can be understood without Spark's log
            raise
        if log is not None and isinstance(short, JobFailedError) and Path(log.name).stat().st_size:
            short = JobFailedError(f"{short}\nSpark's own log: {log.name}")
        raise short from error


def _stopped(name: str, number: int, _: object) -> None:
    raise JobStoppedError(f"{name}: stopped before it had begun", exit_code=128 + number)


def require_libraries() -> None:
    """Raise a `SparkMissingError` if PySpark or pyarrow is not installed, before a job imports them."""
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        raise SparkMissingError(f"{error.name or error} is not installed: pip install nats-bridge-spark") from None


def is_submitted() -> bool:
    """Return whether Spark started this process (`spark-submit`), not the reverse."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _started_java(settings: dict[str, str], log: IO[bytes] | None) -> Any:
    """Return a JVM with Spark, or the one that has started this process."""
    from pyspark import SparkConf
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    launch: Callable[..., Any] = launch_gateway
    conf = SparkConf(loadDefaults=False)
    conf.setAll([*{**_FROM_THE_START, **settings}.items()])
    try:
        return launch(conf, {} if log is None else {"stdout": log, "stderr": log})
    except PySparkRuntimeError:
        # Without a log, Java has written it to stderr, where everybody can read it.
        said = "" if log is None else Path(log.name).read_text("utf-8", "replace")
        raise SparkMissingError(meaning_of_start(said)) from None


def _is_there() -> bool:
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None  # of any thread


def _end() -> None:
    """End the session, and the JVM if this process started it."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway: Any = SparkContext._gateway
    with suppress(Exception):  # Java may be gone
        if _is_there():
            SparkSession.builder.getOrCreate().stop()
    if gateway is None or is_submitted():
        return
    with suppress(Exception):
        gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    process: subprocess.Popen[bytes] = gateway.proc
    try:
        process.communicate(timeout=_PATIENCE)  # it ends its input, which is the sign to end
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
