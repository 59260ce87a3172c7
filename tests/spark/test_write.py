"""Batch write: every row a message of the stream, once, in order, exactly as the row says; or an error names it."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.taskcontext import TaskContext

from nats_bridge_spark.errors import OptionError, PipelineError, RowError, SchemaError, UnreachableError, reported
from pyspark_jetstream import register
from tests.live.copying.forgotten_ids import FORGETFUL, PROBE, last_sequence, until_forgotten
from tests.live.raw_messages import RawPeer
from tests.live.shared_servers import Name
from tests.live.stored_messages import stored_messages

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

VERSIONS = ("2.9.10", "2.10.27", "2.15.3")
ROWS = "subject string, data binary"


@pytest.fixture
async def stream(peer: RawPeer, unique_name: Name) -> str:
    name = unique_name("WRITE")
    await peer.create_stream(name=name, subjects=[f"{name}.>"])
    return name


@pytest.fixture
def write(url: str) -> Callable[..., None]:
    def save(frame: DataFrame, stream: str, mode: str = "append", **options: object) -> None:
        writer = frame.write.format("jetstream").mode(mode).option("servers", url).option("stream", stream)
        for name, value in options.items():
            writer = writer.option(name, str(value).lower() if isinstance(value, bool) else str(value))
        writer.save()

    return save


def numbered(spark: SparkSession, stream: str, count: int, partitions: int = 1) -> DataFrame:
    return spark.range(0, count, 1, partitions).selectExpr(
        f"concat('{stream}.', id) subject", "cast(concat('message ', id) as binary) data"
    )


def failure(write: Callable[..., None], frame: DataFrame, stream: str, **options: object) -> PipelineError:
    with pytest.raises(Exception) as caught:  # noqa: PT011  # whatever Spark makes of it
        write(frame, stream, **options)
    found = reported(caught.value)
    assert found is not None, caught.value
    return found


@pytest.mark.parametrize("version", VERSIONS)
async def test_rows_become_messages_in_order(
    spark: SparkSession, write: Callable[..., None], peer: RawPeer, stream: str
) -> None:
    write(numbered(spark, stream, 5000), stream)
    assert await last_sequence(peer, stream) == 5000
    found = await stored_messages(peer, stream, 5000)
    assert [(m.subject, m.payload) for m in found] == [
        (f"{stream}.{i}".encode(), f"message {i}".encode()) for i in range(5000)
    ]
    blocks = {message.header_block for message in found}
    assert len(blocks) == 5000
    assert all(block.startswith(b"NATS/1.0\r\nNats-Msg-Id: spark-") for block in blocks)


async def test_headers_keep_order_repetitions_and_case(
    spark: SparkSession, write: Callable[..., None], peer: RawPeer, stream: str
) -> None:
    frame = spark.createDataFrame(
        [
            (f"{stream}.a", b"1", [("B", "x"), ("a", "  y "), ("B", ""), ("b", "ü")]),
            (f"{stream}.b", b"2", []),
            (f"{stream}.c", b"3", None),
            (f"{stream}.d", b"", [("Nats-Msg-Id", "mine")]),
        ],
        f"{ROWS}, headers array<struct<name:string,value:string>>",
    )
    write(frame.coalesce(1), stream)
    one, two, three, four = await stored_messages(peer, stream, 4)
    assert one.header_block.startswith("NATS/1.0\r\nB: x\r\na:   y \r\nB: \r\nb: ü\r\nNats-Msg-Id: spark-".encode())
    assert two.header_block.startswith(b"NATS/1.0\r\nNats-Msg-Id: spark-")
    assert three.header_block.startswith(b"NATS/1.0\r\nNats-Msg-Id: spark-")
    assert four.header_block == b"NATS/1.0\r\nNats-Msg-Id: mine\r\n\r\n"
    assert [m.payload for m in (one, two, three, four)] == [b"1", b"2", b"3", b""]


async def test_raw_header_blocks_and_ids_of_a_column_are_exact(
    spark: SparkSession, write: Callable[..., None], peer: RawPeer, stream: str
) -> None:
    odd = b"NATS/1.0\r\nTag:a\r\nTAG:   \xff\r\nno line\r\n\r\n"
    frame = spark.createDataFrame(
        [
            (f"{stream}.a", "one", odd, "id-1"),
            (f"{stream}.b", "zwei ü", None, "id 2"),
            (f"{stream}.c", "again", b"NATS/1.0\r\nNats-Msg-Id: id 2\r\n\r\n", "id 2"),
        ],
        "subject string, data string, header_block binary, key string",
    )
    write(frame.coalesce(1), stream, idColumn="key")
    one, two = await stored_messages(peer, stream, 2)
    assert one.header_block == odd[:-2] + b"Nats-Msg-Id: id-1\r\n\r\n"
    assert two.header_block == b"NATS/1.0\r\nNats-Msg-Id: id 2\r\n\r\n"
    assert (one.payload, two.payload) == (b"one", "zwei ü".encode())
    assert await last_sequence(peer, stream) == 2


async def test_a_thread_of_its_own_writes_when_the_format_is_registered_there(
    spark: SparkSession, write: Callable[..., None], peer: RawPeer, stream: str
) -> None:
    def work() -> None:
        register(spark)
        write(numbered(spark, stream, 10), stream)

    await asyncio.to_thread(work)
    assert await last_sequence(peer, stream) == 10


async def test_a_write_of_several_partitions_says_how_to_resume(
    spark: SparkSession, url: str, write: Callable[..., None], peer: RawPeer, unique_name: Name
) -> None:
    stream = unique_name("WRITE")
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"], **FORGETFUL)
    await peer.store(f"{stream}.before".encode(), PROBE)
    frame = numbered(spark, stream, 2000, partitions=2)

    def after_the_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        if context is not None and context.partitionId():
            asyncio.run(until_forgotten(url, stream, 1000))
        yield from batches

    refused = failure(write, frame.mapInArrow(after_the_first, ROWS), stream)
    assert isinstance(refused, OptionError)
    assert "a write is one task's" in refused.message
    name = re.search(r'\.coalesce\(1\) .* \.option\("writeId", "([0-9a-f]+@1)"\)', refused.message)
    assert name is not None, refused.message
    assert sorted(await _rows(peer, stream)) == sorted(f"message {i}".encode() for i in range(1000))
    for _ in range(2):
        write(frame.coalesce(1), stream, writeId=name[1])
        assert await _rows(peer, stream) == [f"message {i}".encode() for i in range(2000)]


async def test_a_write_can_be_repeated_by_its_name(
    spark: SparkSession, write: Callable[..., None], peer: RawPeer, unique_name: Name
) -> None:
    stream = unique_name("WRITE")
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"], **FORGETFUL)
    # Partition 0 may store its rows before partition 1 fails the write.
    frame = numbered(spark, stream, 2000, partitions=2)
    failure(write, frame, stream, writeId="night")
    write(frame.coalesce(1), stream, writeId="night")
    write(frame.coalesce(1), stream, writeId="night")
    found = await stored_messages(peer, stream, 2000)
    assert [m.payload for m in found] == [f"message {i}".encode() for i in range(2000)]
    assert await last_sequence(peer, stream) == 2000
    other = failure(write, numbered(spark, stream, 2000).orderBy("data").coalesce(1), stream, writeId="night")
    assert isinstance(other, RowError)
    assert "the rows do not come in the same order" in other.message


async def test_a_retried_task_doubles_nothing_after_the_duplicate_window(
    spark: SparkSession,
    write: Callable[..., None],
    peer: RawPeer,
    unique_name: Name,
    tmp_path: Path,
    url: str,
    small_batches: None,
) -> None:
    stream = unique_name("WRITE")
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"], **FORGETFUL)
    write(_once_failing(numbered(spark, stream, 1000), tmp_path, url, stream), stream)
    assert (tmp_path / "failed").exists()
    assert await _rows(peer, stream) == [f"message {i}".encode() for i in range(1000)]


async def _rows(peer: RawPeer, stream: str) -> list[bytes]:
    """The payloads of all that a stream holds, without the probes."""
    found = await stored_messages(peer, stream, await last_sequence(peer, stream))
    return [message.payload.rstrip(b" ") for message in found if message.payload != PROBE]


def _once_failing(frame: DataFrame, place: Path, url: str, stream: str) -> DataFrame:
    """The same rows; the process that makes them dies once, when some are stored and their ids are forgotten."""
    marker = place / "failed"

    def through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number == 4 and not marker.exists():
                asyncio.run(until_forgotten(url, stream, 0))
                marker.touch()
                os._exit(1)
            yield batch

    # Large enough for Spark to hand them on at once.
    padded = frame.selectExpr("subject", "cast(rpad(cast(data as string), 2000, ' ') as binary) data")
    return padded.mapInArrow(through, ROWS)


async def test_a_row_that_cannot_be_a_message_is_named(
    spark: SparkSession, write: Callable[..., None], peer: RawPeer, stream: str
) -> None:
    frame = numbered(spark, stream, 20).selectExpr(f"if(subject = '{stream}.7', null, subject) subject", "data")
    found = failure(write, frame, stream)
    assert isinstance(found, RowError)
    assert found.message == "row 7 of partition 0: subject is null; leave such rows out: .where('subject is not null')"
    assert await last_sequence(peer, stream) == 0


async def test_a_subject_of_another_stream_is_refused(
    spark: SparkSession, write: Callable[..., None], peer: RawPeer, stream: str, unique_name: Name
) -> None:
    other = unique_name("OTHER")
    await peer.create_stream(name=other, subjects=[f"{other}.>"])
    found = failure(write, numbered(spark, other, 10), stream)
    assert f"stream '{stream}' does not store this subject, but {stream}.>" in found.message
    assert await last_sequence(peer, other) == 0


async def test_what_is_wrong_is_said_before_anything_is_written(
    spark: SparkSession, write: Callable[..., None], stream: str
) -> None:
    frame = numbered(spark, stream, 10)
    missing = failure(write, frame, "NO_SUCH_STREAM")
    assert "stream 'NO_SUCH_STREAM': not found at nats://127.0.0.1:" in missing.message
    assert "mode overwrite" in failure(write, frame, stream, mode="overwrite").message
    wrong = failure(write, frame.selectExpr("subject", "data", "1 one", "'x' two"), stream)
    assert isinstance(wrong, SchemaError)
    assert wrong.message == (
        "columns one, two: no part of a message (subject, data, headers or header_block, id);"
        ' leave out what is not to be written: .select("subject", "data")'
    )
    assert "column data: missing" in failure(write, frame.select("subject"), stream).message
    assert "column data: its type is int" in failure(write, frame.selectExpr("subject", "1 data"), stream).message
    assert "option patience: 'x' is not a number of seconds" in failure(write, frame, stream, patience="x").message
    assert "did you mean writeId?" in failure(write, frame, stream, writeIt="x").message
    spark.sparkContext.setLocalProperty("spark.speculation", "true")  # as Spark hands settings on to tasks
    try:
        assert "spark.speculation is on" in failure(write, frame, stream).message
    finally:
        spark.sparkContext.setLocalProperty("spark.speculation", None)
    away = failure(write, frame, stream, servers="nats://127.0.0.1:1", connectTimeout="0.5")
    assert isinstance(away, UnreachableError)
