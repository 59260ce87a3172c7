"""What is measured, each in a process of its own, with a Spark session that has done something small before."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.errors import BenchmarkError
from benchmarks.spark.plain import batches
from benchmarks.spark.processes import peak_of_tree
from benchmarks.spark.scene import SOURCE, make_empty
from benchmarks.workers import Send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_WARM_UP = 20_000  # messages
_LARGE = 2_000_000  # messages: more are measured twice, not five times


def session(cores: int, memory: str = "2g") -> SparkSession:
    """A quiet session on so many cores of this machine."""
    from nats_bridge_spark.session import spark_session

    settings = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}
    settings |= {"spark.master": f"local[{cores}]", "spark.driver.memory": memory}
    return spark_session("benchmark", settings=settings)


def nowhere(frame: DataFrame) -> None:
    """Compute every row and keep none."""
    frame.write.format("noop").mode("overwrite").save()


def _timed(send: Send, work: Callable[[], None], messages: int, prepare: Callable[[], None] = lambda: None) -> None:
    """Do it two or five times, each prepared; Java gets faster as it learns what is done."""
    times = []
    with peak_of_tree() as peak:
        for _ in range(2 if messages > _LARGE else 5):
            prepare()
            begin = time.monotonic()
            work()
            times.append(time.monotonic() - begin)
    send((min(times), peak.held, times[0]))


def read(send: Send, url: str, messages: int, cores: int) -> None:
    """All columns of the stream, in as many partitions as there are cores."""
    spark = session(cores)
    frame = partial(history, spark, url, cores)
    nowhere(frame(_WARM_UP))
    _timed(send, lambda: nowhere(frame(messages)), messages)
    if (count := frame(messages).count()) != messages:
        raise BenchmarkError(f"{count} of {messages} messages were read")
    spark.stop()


def history(spark: SparkSession, url: str, cores: int, last: int) -> DataFrame:
    """All columns of the stream's first messages, in as many partitions as there are cores."""
    options = {"servers": url, "stream": SOURCE, "partitions": str(cores), "endSequence": str(last)}
    return spark.read.format("jetstream").options(**options).load()


def read_with_nats_py(send: Send, url: str, messages: int, cores: int) -> None:
    """Subject, sequence and data, fetched with nats-py in Spark's tasks, in as many partitions as there are cores."""
    spark = session(cores)

    def frame(last: int) -> DataFrame:
        cuts = [last * part // cores for part in range(cores + 1)]
        ranges = [(low + 1, high) for low, high in pairwise(cuts)]

        def fetched(parts: object) -> object:
            for part in parts:  # type: ignore[attr-defined]
                yield from batches(url, [ranges[index] for index in part.column("id").to_pylist()])

        return spark.range(0, cores, 1, cores).mapInArrow(fetched, "subject string, sequence long, data binary")  # type: ignore[arg-type]

    nowhere(frame(_WARM_UP // 10))
    _timed(send, lambda: nowhere(frame(messages)), messages)
    spark.stop()


def write(send: Send, url: str, stream: str, messages: int, cores: int, own_ids: bool) -> None:
    """Rows into an empty stream: with ids of their own, or with ids that the writer gives."""
    spark = session(cores)
    store(spark, url, stream, _WARM_UP, own_ids)
    # A server is slower the more ids it remembers: each time is the first one.
    _timed(
        send,
        lambda: store(spark, url, stream, messages, own_ids),
        messages,
        lambda: make_empty(url, stream, f"{stream.lower()}.*"),
    )
    spark.stop()


def store(spark: SparkSession, url: str, stream: str, count: int, own_ids: bool) -> None:
    """Make rows and write them, once."""
    columns = [f"concat('{stream.lower()}.', id % 1000) as subject", "cast(repeat('x', 128) as binary) as data"]
    if own_ids:
        columns.append("concat('row-', id) as id")
    frame = spark.range(0, count, 1, 1).selectExpr(*columns)
    options = {"servers": url, "stream": stream}
    frame.write.format("jetstream").mode("append").options(**options).save()


def make_subjects(send: Send, place: Path, messages: int) -> None:
    """Subjects as Parquet, 1,000 different ones."""
    spark = session(2)
    spark.range(0, messages, 1, 4).selectExpr(
        "concat('orders.', id % 10, '.', (id div 10) % 100) as subject"
    ).write.mode("overwrite").parquet(str(place))
    spark.stop()
    send(None)


def transform(send: Send, place: Path, src: str, dest: str, messages: int, cores: int) -> None:
    """A column of subjects through `transform_subject`."""
    from nats_bridge_spark.subject_column import transform_subject

    spark = session(cores)
    frame = spark.read.parquet(str(place))
    made = frame.select(transform_subject(frame.subject, src, dest))
    nowhere(made.limit(_WARM_UP))
    _timed(send, lambda: nowhere(made), messages)
    spark.stop()


def make_captures(send: Send, left: Path, right: Path, messages: int) -> None:
    """Two alike captures as Parquet, but for a thousand messages missing and a thousand with another payload."""
    spark = session(2)
    every = messages // 1_000
    rows = spark.range(1, messages + 1, 1, 8).selectExpr(
        "'BENCH' as stream",
        "concat('bench.', id % 1000) as subject",
        "id as sequence",
        "timestamp_micros(1700000000000000 + id) as time",
        "1700000000000000000 + id * 1000 as time_ns",
        "cast(concat('NATS/1.0\\r\\nNats-Msg-Id: order-', id, '\\r\\n\\r\\n') as binary) as header_block",
        "cast(rpad(cast(id as string), 128, 'x') as binary) as data",
    )
    rows.write.mode("overwrite").parquet(str(left))
    planted = rows.where(f"sequence % {every} != 1").selectExpr(
        *(name for name in rows.columns if name != "data"),
        f"if(sequence % {every} = 2, cast('another' as binary), data) as data",
    )
    planted.write.mode("overwrite").parquet(str(right))
    spark.stop()
    send(None)
