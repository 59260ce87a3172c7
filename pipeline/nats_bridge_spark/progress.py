"""Shows a job's progress on stderr: done, rate, time left; and a summary at the end.

On a terminal one line is rewritten; elsewhere a line comes every few seconds. How many messages were handled so far
comes from Spark while tasks run (`spark_counts`), and from the job when it knows exactly: `Progress.add`.
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
from types import FrameType
from typing import TYPE_CHECKING, Final

from nats_bridge_spark.errors import JobStoppedError
from nats_bridge_spark.spark_counts import SparkCounts
from nats_bridge_spark.stopping import in_java, listening

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


INTERVAL: Final = 10.0
"""Seconds between two lines where there is no terminal, unless another interval is asked for."""

_LOOK: Final = 0.5
_REMEMBERED: Final = 15.0
"""Seconds over which the rate is taken."""


@dataclass(frozen=True, slots=True)
class Shown:
    """How progress is shown.

    Attributes:
        quiet: not at all.
        every: seconds between two lines where stderr is no terminal.
    """

    quiet: bool = False
    every: float = INTERVAL


_AS_USUAL: Final = Shown()


@dataclass(slots=True)
class Progress:
    """The progress of a running job; the job reports stages and exact counts.

    Attributes:
        job: what it is called, such as `capture ORDERS`.
        total: how many messages the present stage will handle, as planned; None if that is not known.
        stage: what it does now, for a person.
        messages: handled so far, certainly; the summary prints this number, or what Spark counted
            in the last stage where the job reported nothing.
        count: how many messages the present stage has handled so far, where the job knows better than Spark; called
            from a thread of its own, and may fail.
        kept: what a person should know who stopped the job: what is kept, how to continue.
        started: when the job began, by `time.monotonic`.
        stopping: set when SIGINT or SIGTERM came; a job that ends on its own checks this.
    """

    job: str
    total: int | None = None
    stage: str = ""
    messages: int = 0
    count: Callable[[], int] | None = None
    kept: str = ""
    started: float = field(default_factory=time.monotonic)
    stopping: threading.Event = field(default_factory=threading.Event)
    _screen: _Screen | None = None

    def enter(self, stage: str, *, total: int | None = None, count: Callable[[], int] | None = None) -> None:
        """A new stage begins, counted by `count` or from zero by Spark, towards this total (None keeps the last)."""
        self.stage = stage
        if total is not None:
            self.total = total
        self._restart(count)

    def add(self, messages: int) -> None:
        """Add an exact count; it replaces what Spark counted of these rows."""
        self.messages += messages
        self._restart(None)

    def say(self, text: str) -> None:
        """A line of its own on stderr; nothing where the job is to be quiet."""
        if self._screen is not None:
            self._screen.say(text)

    def line(self, messages: int, rate: float, tasks: tuple[int, int], seconds: float) -> str:
        """One line: `capture ORDERS: reading, 1,200,000 of 5,000,000 (24 %), 118,000/s, 0:32 left, 3 of 8 tasks, …`.

        Args:
            messages: handled in this stage so far.
            rate: messages per second of late; 0 while that is not known.
            tasks: of the tasks of what Spark runs now, those that are over, and all.
            seconds: since the job began.
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

    def _restart(self, count: Callable[[], int] | None) -> None:
        self.count = None
        if self._screen is not None:
            self._screen.restart()
        self.count = count


@contextmanager
def watched(
    spark: SparkSession | None,
    job: str,
    *,
    total: int | None = None,
    shown: Shown = _AS_USUAL,
    drains: bool = False,
) -> Iterator[Progress]:
    """Show the progress of Spark's work inside the block.

    Args:
        spark: the session; all its queries are counted. None for work in this process, which the job counts.
        job: what it is called, such as `capture ORDERS`.
        total: how many messages there are to handle, if that is known.
        shown: whether and how often something is said.
        drains: the block checks `Progress.stopping` and ends on its own after the first signal; only a second one
            cancels.

    Raises:
        JobStoppedError: SIGINT or SIGTERM came: Spark's jobs and queries were cancelled, and the block has ended.
    """
    progress = Progress(job, total)
    stops: list[signal.Signals] = []
    screen = progress._screen = _Screen(progress, spark, shown)

    def on_stop(number: signal.Signals, frame: FrameType | None) -> None:
        stops.append(number)
        progress.stopping.set()
        asked = len(stops) - drains
        if asked < 1:
            return
        screen.cancel()
        # Where Java is asked, its answer (that the job was cancelled) ends the block, unless the user insists.
        if asked > 1 or not in_java(frame):
            raise _stopped(progress, number)

    with listening(on_stop):
        screen.start()
        try:
            yield progress
        except JobStoppedError:
            raise
        except Exception as error:
            if screen.cancels:
                raise _stopped(progress, stops[0]) from error
            raise
        else:
            if screen.cancels:
                raise _stopped(progress, stops[0])
            screen.sum_up()
        finally:
            screen.end()


def _stopped(progress: Progress, number: signal.Signals) -> JobStoppedError:
    kept = f"; {progress.kept}" if progress.kept else ""
    return JobStoppedError(f"{progress.job}: stopped by {number.name}{kept}", exit_code=128 + number)


class _Screen(threading.Thread):
    """Keeps stderr up to date while Spark works, and cancels its work on request."""

    def __init__(self, progress: Progress, spark: SparkSession | None, shown: Shown) -> None:
        super().__init__(name="nats-bridge-progress", daemon=True)
        self.cancels = False
        self._progress = progress
        self._spark = spark
        self._shown = shown
        self._is_terminal = sys.stderr.isatty()
        self._counts: SparkCounts | None = None
        # Hosts of notebooks may forbid to ask Spark's stores: then there are stages and exact counts, but no rows.
        if spark is not None:
            with suppress(Exception):
                self._counts = SparkCounts(spark)
        self._lock = threading.Lock()
        self._over = False
        self._wake = threading.Event()
        self._said = time.monotonic()
        self._history: deque[tuple[float, int]] = deque()
        self._rows = 0
        self._open = False

    def run(self) -> None:
        """Until the end: look, or cancel."""
        while not self._over:
            if self.cancels and self._spark is not None:
                # Java may be gone, which ends the block as well.
                with suppress(Exception):
                    for query in self._spark.streams.active:
                        query.stop()
                    self._spark.sparkContext.cancelAllJobs()
            elif not self._shown.quiet:
                self._look()
            self._wake.wait(_LOOK)
            self._wake.clear()

    def cancel(self) -> None:
        """From now on Spark's jobs and queries are cancelled, those as well that the block still starts."""
        self.cancels = True
        self._wake.set()

    def end(self) -> None:
        """Stop writing; leave the terminal at an empty line."""
        self._over = True
        self._wake.set()
        self.join()
        with self._lock:
            if self._open:
                self._write("", stays=False)

    def say(self, text: str) -> None:
        """A line that stays."""
        if not self._shown.quiet:
            with self._lock:
                self._write(text, stays=True)

    def sum_up(self) -> None:
        """The summary."""
        progress = self._progress
        took = time.monotonic() - progress.started
        with self._lock:
            if self._counts is not None and not progress.messages:
                with suppress(Exception):
                    self._counts.settle()
                self._ask()
            counted = progress.messages or self._rows
        self.say(summary(progress.job, counted, took))

    def restart(self) -> None:
        """Count from zero."""
        with self._lock:
            self._rows = 0
            self._history.clear()
            if self._counts is not None:
                with suppress(Exception):
                    self._counts.restart()

    def _look(self) -> None:
        """Ask Spark, and write if it is time."""
        with self._lock:
            now, progress = time.monotonic(), self._progress
            tasks = self._ask()
            messages, total = progress.messages + self._rows, progress.total
            if total is not None:
                messages = min(messages, total)
            self._history.append((now, messages))
            while len(self._history) > 2 and now - self._history[0][0] > _REMEMBERED:
                self._history.popleft()
            if not self._is_terminal and now - self._said < self._shown.every:
                return
            then, before = self._history[0]
            rate = max(0, messages - before) / (now - then) if now > then else 0.0
            self._said = now
            self._write(progress.line(messages, rate, tasks, now - progress.started), stays=not self._is_terminal)

    def _ask(self) -> tuple[int, int]:
        """Rows and tasks from Spark; a count that cannot be had is no reason to disturb the job."""
        tasks = (0, 0)
        if self._shown.quiet:
            return tasks
        with suppress(Exception):
            if self._counts is not None:
                tasks = self._counts.tasks()
                self._rows = (self._progress.count or self._counts.rows)()
            elif self._progress.count is not None:
                self._rows = self._progress.count()
        return tasks

    def _write(self, text: str, *, stays: bool) -> None:
        begin = "\r\x1b[K" if self._is_terminal else ""
        with suppress(OSError):  # the reader of stderr may have ended
            sys.stderr.write(f"{begin}{text}{chr(10) if stays else ''}")
            sys.stderr.flush()
        self._open = not stays


def summary(job: str, messages: int, seconds: float) -> str:
    """The line at the end: `capture ORDERS: 5,000,000 messages in 42.1 s (118,765/s)`."""
    rate = f" ({messages / seconds:,.0f}/s)" if messages and seconds > 0 else ""
    took = f"{seconds:.1f} s" if seconds < 600 else span(seconds)
    return f"{job}: {messages:,} message{'' if messages == 1 else 's'} in {took}{rate}"


def span(seconds: float) -> str:
    """A duration for a person: `0:07`, `12:30`, `3:05:00`."""
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
