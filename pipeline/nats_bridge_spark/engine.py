"""Chooses the engine of a job: Spark, or this process alone, which starts no Java."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

from nats_bridge.cli.asking import quiet_logs
from nats_bridge_spark.errors import JobStoppedError, PipelineError, marking, reported
from nats_bridge_spark.failures import failure
from nats_bridge_spark.session import is_submitted, job_session
from nats_bridge_spark.source.loop_thread import LoopThread
from nats_bridge_spark.stopping import listening

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

Session: TypeAlias = "Callable[[Callable[[], Size]], SparkSession | None]"
"""Returns a job's session, or None for work in this process; called with a function that returns the size of the
input."""


def runs_here(engine: Engine, settings: Mapping[str, str], size: Callable[[], Size]) -> bool:
    """Return whether a job runs in this process.

    Args:
        engine: the user's choice; with `auto`, Spark settings and `spark-submit` also count as a choice.
        settings: the user's settings of Spark.
        size: returns the size of the input; only called with `auto`.

    Raises:
        Exception: an error of `size`.
    """
    if engine != "auto" or settings or is_submitted():
        return engine == "local"
    messages, size_in_bytes = size()
    return messages < MESSAGES and size_in_bytes < BYTES


def run_here(loop: LoopThread, work: Coroutine[Any, Any, _Result]) -> _Result:
    """Do work in this process that is otherwise a task's.

    Raises:
        PipelineError: the error in the driver's form for a task.
    """

    async def marked() -> _Result:
        with marking():
            return await work

    try:
        return loop.run(marked())
    except PipelineError as error:
        raise reported(error) or error from None


@contextmanager
def engine_of(name: str, engine: Engine, settings: Mapping[str, str]) -> Iterator[Session]:
    """Provide the session of a command's job, which the job requests when it knows the size of its input.

    Args:
        name: the job's.
        engine: the user's choice.
        settings: the user's settings of Spark.

    Raises:
        PipelineError, JobStoppedError: as `local_job` and `session.job_session` do.
    """
    with ExitStack() as sessions, quiet_logs():

        def session(size: Callable[[], Size]) -> SparkSession | None:
            if runs_here(engine, settings, size):
                return sessions.enter_context(local_job(name))
            return sessions.enter_context(job_session(name, settings=settings, quiet=False))

        yield session


@contextmanager
def local_job(name: str) -> Iterator[None]:
    """A command's job in this process, with the errors and signals of `session.job_session`.

    Raises:
        PipelineError: any error inside the block, in one or two lines (`failures.failure`).
        JobStoppedError: SIGINT or SIGTERM came.
    """

    def stopped(number: int, _: object) -> None:
        raise JobStoppedError(f"{name}: stopped before it had begun", exit_code=128 + number)

    try:
        with listening(stopped), quiet_logs():
            yield
    except JobStoppedError:
        raise
    except Exception as error:
        short = failure(name, error)
        if short is error:
            raise
        raise short from error
