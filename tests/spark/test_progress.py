"""What a person sees of a job, and how a job is stopped."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from nats_bridge_spark import progress
from nats_bridge_spark.errors import JobStoppedError
from nats_bridge_spark.progress import Progress, span, summary, watched
from tests.spark.waiting import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def soon(condition: Callable[[], bool]) -> bool:
    """Look again and again, in whatever thread, until the condition holds."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.parametrize(
    ("progress", "now", "expected"),
    [
        (Progress("capture S"), (0, 0.0, (0, 0), 3), "capture S: 0:03 so far"),
        (
            Progress("capture S", 5_000_000, "reading"),
            (1_200_000, 118_000.4, (3, 8), 12),
            "capture S: reading, 1,200,000 of 5,000,000 (24 %), 118,000/s, 0:32 left, 3 of 8 tasks, 0:12 so far",
        ),
        (Progress("diff", None, "joining"), (5, 0.2, (0, 0), 61), "diff: joining, 5 messages, 1:01 so far"),
        (Progress("x", 0), (0, 0.0, (0, 0), 0), "x: 0:00 so far"),
        (Progress("x", 10), (10, 5.0, (0, 0), 2), "x: 10 of 10 (100 %), 5/s, 0:02 so far"),
    ],
)
def test_a_line(progress: Progress, now: tuple[int, float, tuple[int, int], float], expected: str) -> None:
    assert progress.line(*now) == expected


def test_the_summary() -> None:
    assert summary("capture S", 5_000_000, 42.1) == "capture S: 5,000,000 messages in 42.1 s (118,765/s)"
    assert summary("capture S", 1, 0.5) == "capture S: 1 message in 0.5 s (2/s)"
    assert summary("capture S", 0, 0.0) == "capture S: 0 messages in 0.0 s"
    assert summary("capture S", 0, 4000) == "capture S: 0 messages in 1:06:40"


def test_spans() -> None:
    assert [span(seconds) for seconds in (0, 59.4, 59.5, 3599, 3600, 36_000)] == [
        "0:00",
        "0:59",
        "1:00",
        "59:59",
        "1:00:00",
        "10:00:00",
    ]


def test_the_summary_shows_what_the_job_knows(capfd: pytest.CaptureFixture[str]) -> None:
    with watched(None, "a job") as progress:
        progress.add(7)
        progress.add(5)
    assert capfd.readouterr().err.startswith("a job: 12 messages in ")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_one_line_that_is_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with watched(None, "a job", total=9) as progress:
        progress.enter("waiting")
        assert soon(lambda: terminal.getvalue().count("\r\x1b[Ka job: waiting, 0 of 9 (0 %)") > 1)
        progress.say("a word")
    lines = terminal.getvalue().split("\n")
    assert lines[0].endswith("\r\x1b[Ka word")
    assert lines[1].endswith(lines[1][lines[1].rindex("\x1b[Ka job: 0 messages in ") :])
    assert lines[2:] == [""]


def test_elsewhere_a_line_comes_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    monkeypatch.setattr(progress, "INTERVAL", 0.0)
    with watched(None, "a job") as shown:
        shown.enter("reading", total=9, count=lambda: 1 // 0)
        shown.enter("reading", count=lambda: 4)
        assert soon(lambda: "a job: reading, 4 of 9 (44 %)" in written.getvalue())
    assert all(text.startswith("a job: ") for text in written.getvalue().splitlines())
    assert "\r" not in written.getvalue()


def send(number: signal.Signals, when: Callable[[], bool]) -> Iterator[None]:
    """Send this process a signal as soon as something holds."""

    def wait() -> None:
        if soon(when):
            os.kill(os.getpid(), number)

    thread = threading.Thread(target=wait)
    thread.start()
    yield
    thread.join()


def endless(spark: SparkSession) -> Any:
    """A job that does not end on its own, unless something is wrong."""

    def sleep(row: int) -> int:
        time.sleep(PATIENCE)
        return row

    return spark.sparkContext.parallelize(range(2), 2).map(sleep).collect()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_cancels(
    spark: SparkSession, number: signal.Signals, code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    tracker = spark.sparkContext.statusTracker()
    sending = send(number, lambda: bool(tracker.getActiveStageIds()))
    before = signal.getsignal(number)

    def job() -> None:
        with watched(spark, "a job") as progress:
            progress.kept = "nothing is kept; begin again"
            next(sending)
            endless(spark)

    with pytest.raises(JobStoppedError) as stopped:
        job()
    next(sending, None)
    assert stopped.value.exit_code == code
    assert str(stopped.value) == f"a job: stopped by {number.name}; nothing is kept; begin again"
    assert signal.getsignal(number) is before
    assert soon(lambda: not tracker.getActiveStageIds())
    assert spark.range(3).count() == 3


def test_a_signal_ends_what_is_not_spark() -> None:
    def job() -> None:
        with watched(None, "a job"):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(PATIENCE)

    with pytest.raises(JobStoppedError, match=r"^a job: stopped by SIGTERM$"):
        job()


def test_a_job_that_drains_ends_on_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    with watched(None, "a job", drains=True) as progress:
        os.kill(os.getpid(), signal.SIGTERM)
        assert progress.stopping.wait(PATIENCE)
        progress.add(3)
    assert "a job: 3 messages in " in capfd.readouterr().err


def test_a_second_signal_cancels_what_drains() -> None:
    def job() -> None:
        with watched(None, "a job", drains=True) as progress:
            os.kill(os.getpid(), signal.SIGINT)
            assert progress.stopping.wait(PATIENCE)
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(PATIENCE)

    with pytest.raises(JobStoppedError) as stopped:
        job()
    assert stopped.value.exit_code == 143


def test_an_error_goes_through() -> None:
    with pytest.raises(ZeroDivisionError), watched(None, "a job"):
        _ = 1 / 0
