"""The error of a job that Spark gave up: a line, never a stack."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from nats_bridge.errors import ServerUnreachableError
from nats_bridge_spark.errors import DataLostError, JobFailedError, marking
from nats_bridge_spark.failures import failure, meaning_of_start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def reported_of(work: Any) -> str:
    with pytest.raises(Exception) as raised:  # noqa: PT011  # whatever Spark makes of it
        work()
    short = failure("a job", raised.value)
    assert isinstance(short, JobFailedError)
    return str(short)


def test_an_error_in_a_task(spark: SparkSession) -> None:
    def work() -> Any:
        return spark.sparkContext.parallelize(range(2), 1).map(lambda row: row // 0).collect()

    assert reported_of(work) == "a job: a task failed: ZeroDivisionError: integer division or modulo by zero"


def test_an_error_of_ours_in_a_task(spark: SparkSession) -> None:
    def fail(_: int) -> int:
        with marking():
            raise DataLostError("stream ORDERS: sequence 7 is gone")

    with pytest.raises(Exception) as raised:  # noqa: PT011
        spark.sparkContext.parallelize(range(2), 1).map(fail).collect()
    short = failure("a job", raised.value)
    assert isinstance(short, DataLostError)
    assert str(short) == "stream ORDERS: sequence 7 is gone"


def test_a_worker_that_dies(spark: SparkSession) -> None:
    def work() -> Any:
        return spark.sparkContext.parallelize(range(2), 1).map(lambda _: os._exit(3)).collect()

    assert reported_of(work).startswith("a job: a Python worker died: out of memory, killed, or it lacks pyarrow")


def test_a_path_that_is_not_there(spark: SparkSession) -> None:
    assert reported_of(lambda: spark.read.parquet("/nonexistent/at/all")) == (
        "a job: [PATH_NOT_FOUND] Path does not exist: file:/nonexistent/at/all. SQLSTATE: 42K03"
    )


def test_a_directory_that_cannot_be_made(spark: SparkSession) -> None:
    said = reported_of(lambda: spark.range(1).write.parquet("/proc/nowhere"))
    assert "Mkdirs failed to create file:/proc/nowhere/" in said
    assert len(said.splitlines()) == 1


def test_too_little_memory(spark: SparkSession) -> None:
    said = reported_of(lambda: spark.range(1).selectExpr("repeat('x', 2000000000)").collect())
    assert said.startswith("a job: Java ran out of memory: give more, such as --spark spark.driver.memory=4g")


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("java.io.IOException: No space left on device\n\tat x", "no space is left on a disk"),
        (
            "Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, most recent failure: Lost task 0.3"
            " in stage 1.0 (TID 9) (10.0.0.1 executor 3): ExecutorLostFailure (executor 3 exited caused by one of the"
            " running tasks) Reason: Remote RPC client disassociated.",
            "executor 3 was lost",
        ),
        ("java.nio.file.AccessDeniedException: /data\n\tat x", "AccessDeniedException: /data"),
        ("", "unexpected RuntimeError"),
        ("x" * 1000, "x" * 400 + "…"),
    ],
)
def test_what_spark_says_of_other_things(text: str, meaning: str) -> None:
    assert str(failure("a job", RuntimeError(text))).startswith(f"a job: {meaning}")


def test_an_error_of_the_bridge_stays() -> None:
    error = ServerUnreachableError("connection 'x': no answer")
    assert failure("a job", error) is error


@pytest.mark.parametrize(
    ("said", "meaning"),
    [
        (
            "WARNING: x\nUnrecognized VM option 'UseX'\nError: y\n",
            "Spark does not start: Unrecognized VM option 'UseX'",
        ),
        ("WARNING: x\nanother reason\n", "Spark does not start: another reason"),
        ("", "Spark does not start: Java ended at once"),
    ],
)
def test_what_keeps_java_from_starting(said: str, meaning: str) -> None:
    assert meaning_of_start(said).startswith(meaning)
