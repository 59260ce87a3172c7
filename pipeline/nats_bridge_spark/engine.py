"""Chooses the engine of a job: Spark, or this process alone, which starts no Java."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

import click

from nats_bridge.errors import BridgeError
from nats_bridge_spark.errors import own_error, reported
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


@contextmanager
def engine_session(
    name: str, engine: Engine, settings: Mapping[str, str], size: Callable[[], Size], defaults: Mapping[str, str]
) -> Iterator[SparkSession | None]:
    """Run the job of a command, and provide its session; None for work in this process.

    Args:
        engine: the user's choice; with `auto`, Spark settings and `spark-submit` also count as a choice.
        defaults: Spark settings that the user's replace.

    Raises:
        PipelineError, JobStoppedError: as `session.reporting` and `session.job_session` do.
        Exception: an error of `size`.
    """
    if engine == "auto" and not settings and not is_submitted():
        messages, size_in_bytes = size()
        engine = "local" if messages < MESSAGES and size_in_bytes < BYTES else "spark"
    if engine == "local":
        with reporting(name):
            yield None
    else:
        click.echo(f"{name}: starting Spark", err=True)  # which takes some seconds without progress
        with job_session(name, settings={**defaults, **settings}) as spark:
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
