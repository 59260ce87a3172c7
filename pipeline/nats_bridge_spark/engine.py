"""Chooses the engine of a job: Spark, or this process alone, which starts no Java."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

import click

from nats_bridge.errors import BridgeError
from nats_bridge_spark.errors import OptionError, own_error, reported
from nats_bridge_spark.session import is_submitted, job_session, reporting
from nats_bridge_spark.source.loop_thread import LoopThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_Result = TypeVar("_Result")

Engine: TypeAlias = Literal["auto", "spark", "local"]

MESSAGES: Final = 10_000_000
"""Number of messages from which `auto` chooses Spark."""
BYTES: Final = 4 << 30
"""Number of bytes from which `auto` chooses Spark."""

Size: TypeAlias = tuple[int, int]
"""Messages, and their bytes."""

_ADDRESS: Final = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.-]+:")


def is_local(path: str) -> bool:
    """Return whether a path or an address names a directory of this machine."""
    return path.startswith("file:") or not _ADDRESS.match(path)


def runs_here(
    engine: Engine, settings: Mapping[str, str], size: Callable[[], Size], directories: Sequence[str] = ()
) -> bool:
    """Return whether a job runs in this process.

    Args:
        engine: the user's choice; with `auto`, Spark settings and `spark-submit` also count as a choice.

    Raises:
        OptionError: the user wants that, and only Spark reaches a directory.
        Exception: an error of `size`.
    """
    away = next((name for name in directories if not is_local(name)), None)
    if away is not None and engine == "local":
        raise OptionError(f"--engine local: only Spark reaches {away}; leave it out")
    if engine != "auto" or settings or is_submitted() or away is not None:
        return engine == "local"
    messages, size_in_bytes = size()
    return messages < MESSAGES and size_in_bytes < BYTES


@contextmanager
def engine_session(name: str, settings: Mapping[str, str], *, here: bool) -> Iterator[SparkSession | None]:
    """Run the job of a command, and provide its session; None for work in this process.

    Raises:
        PipelineError, JobStoppedError: as `session.reporting` and `session.job_session` do.
    """
    if here:
        with reporting(name):
            yield None
    else:
        click.echo(f"{name}: starting Spark", err=True)  # which takes some seconds without progress
        with job_session(name, settings=settings) as spark:
            yield spark


def run_here(loop: LoopThread, work: Coroutine[Any, Any, _Result]) -> _Result:
    """Do work in this process that is otherwise a task's.

    Raises:
        PipelineError: the error that a task would raise.
    """
    try:
        return loop.run(work)
    except BridgeError as error:
        raise reported(own_error(error)) or error from None
