"""Spark's part of a backfill: watched, and with an error of ours where it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from nats_bridge.pipeline.errors import JobFailedError, JobStoppedError
from nats_bridge.pipeline.failures import failure
from nats_bridge.pipeline.progress import Progress, Shown, watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["done", "watching"]

_Result = TypeVar("_Result")
_KEPT: Final = "what was copied stays: run the same command again"


@contextmanager
def watching(spark: SparkSession, job: str, messages: int, shown: Shown) -> Iterator[Progress]:
    """Show the progress of what is done inside of the block.

    Args:
        spark: the session.
        job: what it is called.
        messages: how many there are at most.
        shown: how.
    """
    with watched(spark, job, total=messages, shown=shown) as progress:
        progress.kept = _KEPT
        yield progress


def done(job: str, work: Callable[[], _Result]) -> _Result:
    """What Spark's work gives.

    Raises:
        BridgeError: what a task said, or that Spark gave the job up.
    """
    try:
        return work()
    except JobStoppedError:
        raise
    except Exception as error:
        said = failure(job, error)
        if isinstance(said, JobFailedError):
            raise JobFailedError(f"{said.message}; {_KEPT}") from None
        raise said from None
