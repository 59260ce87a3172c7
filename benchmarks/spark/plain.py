"""The comparison: nats-py as its documentation shows it, in a loop; and the same loop in Spark's tasks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import nats
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from benchmarks.errors import BenchmarkError
from benchmarks.load import chunks, publish_chunks
from benchmarks.spark.scene import SOURCE
from benchmarks.workers import Send

if TYPE_CHECKING:
    import pyarrow as pa
    from nats.aio.msg import Msg


_FETCH = 500  # messages asked for at once
_ROWS = 10_000  # rows of a batch for Spark
_IN_FLIGHT = 4_000  # messages without an answer, nats-py's default


def read_loop(send: Send, url: str, messages: int) -> None:
    """Read the first messages of the stream; return the seconds."""
    send(asyncio.run(_read_all(url, messages)))


async def _read_all(url: str, messages: int) -> float:
    begin = time.monotonic()
    count = 0
    async for fetched in _fetched(url, 1, messages):
        count += len(fetched)
    assert count == messages
    return time.monotonic() - begin


async def _fetched(url: str, first: int, last: int) -> AsyncIterator[list[Msg]]:
    connection = await nats.connect(url)
    config = ConsumerConfig(
        ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=first
    )
    subscription = await connection.jetstream().pull_subscribe("bench.>", stream=SOURCE, config=config)
    left = last - first + 1
    while left:
        messages = await subscription.fetch(min(_FETCH, left), timeout=60)
        left -= len(messages)
        yield messages
    await connection.close()


def read_without_spark(send: Send, url: str, messages: int) -> None:
    """Read all columns as a task of Spark does; return seconds and CPU seconds."""
    from pyspark.sql.types import ArrayType, BinaryType, LongType, StringType, StructType, TimestampType

    from nats_bridge_spark.data_source import JetStreamDataSource

    text, number = StringType(), LongType()
    header = StructType().add("name", text).add("value", text)
    schema = StructType().add("stream", text).add("subject", text).add("sequence", number).add("time", TimestampType())
    schema.add("time_ns", number).add("headers", ArrayType(header)).add("data", BinaryType())
    begin, cpu = time.monotonic(), time.process_time()
    options = {"servers": url, "stream": SOURCE, "partitions": "1", "endSequence": str(messages)}
    reader = JetStreamDataSource(options).reader(schema)
    count = sum(len(batch) for part in reader.partitions() for batch in reader.read(part))
    took = time.monotonic() - begin, time.process_time() - cpu
    if count != messages:
        raise BenchmarkError(f"{count} of {messages} messages were read")
    send(took)


def batches(url: str, ranges: Iterable[tuple[int, int]]) -> Iterator[pa.RecordBatch]:
    """Sequence ranges of the stream as batches of subject, sequence and data, read with nats-py."""
    import pyarrow as pa

    schema = pa.schema([("subject", pa.string()), ("sequence", pa.int64()), ("data", pa.binary())])
    loop = asyncio.new_event_loop()
    for first, last in ranges:
        rows: list[tuple[str, int, bytes]] = []
        source = _fetched(url, first, last)
        while (fetched := loop.run_until_complete(anext(source, None))) is not None:
            rows += [(message.subject, message.metadata.sequence.stream, message.data) for message in fetched]
            if len(rows) >= _ROWS:
                yield _batch(rows, schema)
                rows = []
        if rows:
            yield _batch(rows, schema)
    loop.close()


def _batch(rows: list[tuple[str, int, bytes]], schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    columns = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
    )


def publish_ready_made(send: Send, url: str, messages: int) -> None:
    """Publish prepared messages to `rows.N`, 128 bytes with ids, an answer for every thousand; return the seconds."""
    port = urlsplit(url).port
    assert port is not None
    made = list(chunks(messages, name=b"rows", block=b"NATS/1.0\r\nNats-Msg-Id: made-%(number)d\r\n\r\n"))
    begin = time.monotonic()
    publish_chunks(port, made)
    send(time.monotonic() - begin)


def publish_loop(send: Send, url: str, messages: int, subject: str) -> None:
    """Publish messages of 128 bytes with ids, answers gathered as they come; return the seconds."""
    send(asyncio.run(_publish_all(url, messages, subject)))


async def _publish_all(url: str, messages: int, subject: str) -> float:
    connection = await nats.connect(url)
    stream = connection.jetstream(publish_async_max_pending=_IN_FLIGHT)
    body = b"x" * 128
    begin = time.monotonic()
    for number in range(messages):
        await stream.publish_async(
            f"{subject}.{number % 1000}", body, wait_stall=60, headers={"Nats-Msg-Id": f"plain-{number}"}
        )
    await stream.publish_async_completed()
    took = time.monotonic() - begin
    await connection.close()
    return took
