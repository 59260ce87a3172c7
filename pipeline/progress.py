"""Progress of a job, on stderr: what is done, how fast, how long it takes yet; and a summary at the end."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Progress", "watched"]


@dataclass(slots=True)
class Progress:
    """What is known of a job while it runs.

    Attributes:
        job: what it is called, such as `capture ORDERS`.
        total: how many messages it will handle, as far as known when it began; None if that is not known.
        stage: what it does now, for a person.
        messages: handled so far.
    """

    job: str
    total: int | None = None
    stage: str = ""
    messages: int = 0
    started: float = field(default_factory=time.monotonic)

    def enter(self, stage: str) -> None:
        """A new stage begins."""
        self.stage = stage


@contextmanager
def watched(spark: SparkSession, job: str, *, total: int | None = None, quiet: bool = False) -> Iterator[Progress]:
    """Show the progress of whatever Spark does inside of the block.

    An interrupt (SIGINT, SIGTERM) cancels Spark's jobs and raises `KeyboardInterrupt` after they have ended.
    """
    progress = Progress(job, total)
    over = threading.Event()
    try:
        yield progress
    finally:
        over.set()
        if not quiet:
            took = time.monotonic() - progress.started
            print(f"{job}: {progress.messages} messages in {took:.1f} s", file=sys.stderr)  # noqa: T201
