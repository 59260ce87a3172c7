"""Shows a job's progress on stderr: done, rate, time left, and finally a summary. Stops the job at a signal.

On a terminal, one line is rewritten; otherwise a line is written every few seconds.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from nats_bridge_spark.errors import JobStoppedError
from nats_bridge_spark.reports import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def listening(on_stop: Callable[[int, Any], None]) -> Iterator[None]:
    """Call `on_stop` with the signal and the interrupted frame for each SIGINT and SIGTERM inside of the block.

    Outside the main thread, which alone receives signals, it does nothing.
    """
    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, on_stop) for number in (signal.SIGINT, signal.SIGTERM) if is_main}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old if old is not None else signal.SIG_DFL)


INTERVAL: Final = 10.0
"""Seconds between two lines without a terminal."""

_LOOK: Final = 0.5
_LOOKS: Final = 30
"""Over which the rate is taken."""


@dataclass(slots=True)
class Progress:
    """The progress of a running job; the job reports stages and counts.

    Attributes:
        messages: the number of messages so far, which the summary prints.
        count: returns the additional messages of the present stage; called in another thread, and may fail.
        kept: the hint for a person who stops the job: which results are kept, and how to continue.
        stopping: set after SIGINT or SIGTERM; a job that ends by itself checks it.
    """

    job: str
    total: int | None = None
    stage: str = ""
    messages: int = 0
    count: Callable[[], int] | None = None
    kept: str = ""
    started: float = field(default_factory=time.monotonic)
    stopping: threading.Event = field(default_factory=threading.Event)

    def enter(self, stage: str, *, total: int | None = None, count: Callable[[], int] | None = None) -> None:
        """A new stage begins, counted by `count`, towards this total (None keeps the last)."""
        self.stage, self.count = stage, count
        if total is not None:
            self.total = total

    def add(self, messages: int) -> None:
        """Add messages that are handled, in place of those that `count` has counted."""
        self.messages += messages
        self.count = None

    def say(self, text: str) -> None:
        """Write a separate line on stderr."""
        _write(text, stays=True)

    def line(self, messages: int, rate: float, tasks: tuple[int, int], seconds: float) -> str:
        """One line: `capture ORDERS: reading, 1,200,000 of 5,000,000 (24 %), 118,000/s, 0:32 left, 3 of 8 tasks, …`.

        Args:
            rate: recent messages per second; 0 if unknown.
            tasks: the finished tasks and all tasks that Spark is running.
        """
        total = self.total  # once: the job's own thread may change it at any moment
        parts = [self.stage] if self.stage else []
        if messages or total:
            share = f" ({min(100, messages * 100 // total)} %)" if total else ""
            parts.append(f"{messages:,}" + (" messages" if total is None else f" of {total:,}{share}"))
        if rate >= 1:
            parts.append(f"{rate:,.0f}/s")
            if total is not None and total > messages:
                parts.append(f"{span((total - messages) / rate)} left")
        if tasks[1]:
            parts.append(f"{tasks[0]} of {tasks[1]} tasks")
        return f"{self.job}: {', '.join([*parts, f'{span(seconds)} so far'])}"


@contextmanager
def watched(
    spark: SparkSession | None, job: str, *, total: int | None = None, drains: bool = False
) -> Iterator[Progress]:
    """Show the progress of the work inside the block.

    Args:
        drains: whether the block checks `Progress.stopping` and ends by itself after the first signal, so only a second
            one cancels.

    Raises:
        JobStoppedError: SIGINT or SIGTERM came: Spark's jobs were cancelled, and the block has ended.
    """
    progress = Progress(job, total)
    stops: list[int] = []
    over = threading.Event()

    def is_cancelled() -> bool:
        return len(stops) > drains

    def on_stop(number: int, _: object) -> None:
        stops.append(number)
        progress.stopping.set()
        # An error would break a call to Java. Java's answer, that the job was cancelled, ends the block.
        if len(stops) - drains > (0 if spark is None else 1):
            raise _stopped(progress, number)

    work = progress, spark, is_cancelled, over
    screen = threading.Thread(target=_show, args=work, name="nats-bridge-progress", daemon=True)
    with listening(on_stop):
        screen.start()
        try:
            yield progress
        except Exception as error:
            if is_cancelled() and not isinstance(error, JobStoppedError):
                raise _stopped(progress, stops[0]) from error
            raise
        finally:
            over.set()
            screen.join()
            _write("", stays=False)  # an empty line of the terminal
        if is_cancelled():
            raise _stopped(progress, stops[0])
        _write(summary(job, progress.messages, time.monotonic() - progress.started), stays=True)


def _stopped(progress: Progress, number: int) -> JobStoppedError:
    kept = f"; {progress.kept}" if progress.kept else ""
    return JobStoppedError(f"{progress.job}: stopped by {signal.Signals(number).name}{kept}", exit_code=128 + number)


def _show(
    progress: Progress, spark: SparkSession | None, is_cancelled: Callable[[], bool], over: threading.Event
) -> None:
    """Keep stderr up to date until the end. Once cancelled, cancel Spark's jobs, those as well that still start."""
    is_terminal = sys.stderr.isatty()
    said, seen = time.monotonic(), deque[tuple[float, int]](maxlen=_LOOKS)
    while not over.wait(_LOOK):
        if is_cancelled():
            with suppress(Exception):  # Java may be gone, which ends the block as well
                if spark is not None:
                    spark.sparkContext.cancelAllJobs()
            continue
        now = time.monotonic()
        seen.append((now, _counted(progress)))
        if is_terminal or now - said >= INTERVAL:
            said = now
            (then, before), (_, messages) = seen[0], seen[-1]
            rate = max(0, messages - before) / (now - then) if now > then else 0.0
            line = progress.line(messages, rate, _tasks(spark), now - progress.started)
            _write(line, stays=not is_terminal)


def _counted(progress: Progress) -> int:
    count, messages = progress.count, progress.messages
    with suppress(Exception):  # a failed count must not disturb the job
        messages += 0 if count is None else count()
    return messages if progress.total is None else min(messages, progress.total)


def _tasks(spark: SparkSession | None) -> tuple[int, int]:
    """Return the finished tasks and all tasks that Spark is running."""
    with suppress(Exception):  # hosts of notebooks may forbid to ask
        if spark is not None:
            tracker = spark.sparkContext.statusTracker()
            stages = filter(None, map(tracker.getStageInfo, tracker.getActiveStageIds()))
            counts = [(stage.numCompletedTasks, stage.numTasks) for stage in stages]
            return sum(done for done, _ in counts), sum(planned for _, planned in counts)
    return 0, 0


def _write(text: str, *, stays: bool) -> None:
    """Write a line on stderr. On a terminal, the next one overwrites it unless it stays."""
    begin = "\r\x1b[K" if sys.stderr.isatty() else ""
    with suppress(OSError):  # the reader of stderr may have ended
        sys.stderr.write(f"{begin}{text}{chr(10) if stays else ''}")
        sys.stderr.flush()


def summary(job: str, messages: int, seconds: float) -> str:
    """Return the line at the end: `capture ORDERS: 5,000,000 messages in 42.1 s (118,765/s)`."""
    rate = f" ({messages / seconds:,.0f}/s)" if messages and seconds > 0 else ""
    took = f"{seconds:.1f} s" if seconds < 600 else span(seconds)
    return f"{job}: {counted(messages, 'message')} in {took}{rate}"


def span(seconds: float) -> str:
    """Return a duration for a person: `0:07`, `12:30`, `3:05:00`."""
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
