"""Offsets of a streaming read, asked for as Spark asks, without Spark."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows

from nats_bridge_spark.columns import read_schema
from nats_bridge_spark.errors import DataLostError, OptionError
from nats_bridge_spark.source import stream_reader
from nats_bridge_spark.source.read_options import ReadOptions
from nats_bridge_spark.source.stream_reader import StreamReader
from nats_transforms.timestamp import nanoseconds_of, rfc3339_nano
from tests.live.raw_messages import RawPeer
from tests.live.shared_servers import Name
from tests.live.until import until
from tests.spark.reading import spark_schema


@pytest.fixture(params=["2.9.10", "2.10.27", "2.15.3"])
def version(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
async def reader(url: str, peer: RawPeer, unique_name: Name) -> AsyncIterator[Callable[..., StreamReader]]:
    made: list[StreamReader] = []
    stream = unique_name("OFFSETS")
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"])

    def make(**options: Any) -> StreamReader:
        given = {"servers": url, "stream": stream, **{name: str(value) for name, value in options.items()}}
        made.append(StreamReader(ReadOptions.of(given), read_schema(spark_schema("sequence"))))
        return made[-1]

    yield make
    for one in made:
        await asyncio.to_thread(one.stop)


def plain(offset: dict[str, Any]) -> dict[str, Any]:
    """Without the messages by which the streams are recognised."""
    return {"streams": {name: {**at, "messages": ()} for name, at in offset["streams"].items()}}


def stream_of(reader: StreamReader) -> str:
    return reader._options.stream


async def store(peer: RawPeer, stream: str, count: int) -> None:
    for number in range(count):
        await peer.store(f"{stream}.{number % 3}".encode())


async def test_offsets_from_an_empty_stream_on(peer: RawPeer, reader: Callable[..., StreamReader]) -> None:
    one = reader()

    def ask() -> dict[str, Any]:
        first = one.initialOffset()
        assert first["sequence"] == 0
        assert one.latestOffset(first, ReadAllAvailable()) == first
        assert one.partitions(first, first) == []
        return first

    first = await asyncio.to_thread(ask)
    await store(peer, stream_of(one), 30)
    whole = await asyncio.to_thread(one.latestOffset, first, ReadAllAvailable())
    assert (whole["created"], whole["sequence"]) == (first["created"], 30)
    assert await asyncio.to_thread(one.reportLatestOffset) == {**whole, "lag": 0}
    assert await asyncio.to_thread(one.latestOffset) == whole, "as PySpark 4.1 asks"
    some = await asyncio.to_thread(one.latestOffset, first, ReadMaxRows(7))
    assert some["sequence"] == 7
    assert await asyncio.to_thread(one.reportLatestOffset) == {**whole, "lag": 23}, "what the batch leaves"
    parts: Any = await asyncio.to_thread(one.partitions, some, whole)
    assert [(part.first, part.last) for part in parts] == [(8, 30)]


async def test_the_limit_is_in_rows_whatever_lies_between(peer: RawPeer, reader: Callable[..., StreamReader]) -> None:
    one = reader()
    await store(peer, stream_of(one), 90)
    selecting = reader(subjects=f"{stream_of(one)}.2")
    first = await asyncio.to_thread(selecting.initialOffset)
    limited = await asyncio.to_thread(selecting.latestOffset, first, ReadMaxRows(10))
    assert 27 <= limited["sequence"] <= 32, "nine or ten of those that are selected"
    assert (await asyncio.to_thread(selecting.reportLatestOffset))["lag"] in (20, 21)
    await peer.api(f"STREAM.PURGE.{stream_of(one)}", {"seq": 81})
    careless = reader(failOnDataLoss="false")
    limited = await asyncio.to_thread(careless.latestOffset, first, ReadMaxRows(10))
    assert limited["sequence"] == 90
    with pytest.raises(DataLostError, match="messages 1 to 80 were removed"):
        await asyncio.to_thread(one.latestOffset, first, ReadMaxRows(10))


@pytest.mark.parametrize("version", ["2.15.3"])
async def test_a_batch_waits_until_enough_messages_wait_or_long_enough(
    peer: RawPeer, reader: Callable[..., StreamReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with Spark's source for Kafka; the clock is the test's."""
    stream = stream_of(reader())
    one = reader(subjects=f"{stream}.2", minOffsetsPerTrigger=5, maxTriggerDelay="10m", maxOffsetsPerTrigger=50)
    now = [0.0]
    monkeypatch.setattr(stream_reader, "time", SimpleNamespace(monotonic=lambda: now[0]))
    limit = one.getDefaultReadLimit()
    assert limit == ReadMaxRows(50)
    assert reader(minRowsPerTrigger=5).getDefaultReadLimit() == ReadMinRows(5)

    async def latest(start: dict[str, Any], limit: ReadLimit = limit) -> dict[str, Any]:
        return await asyncio.to_thread(one.latestOffset, start, limit)

    first = await asyncio.to_thread(one.initialOffset)
    await store(peer, stream, 3)
    begun = await latest(first)
    assert begun["sequence"] == 3, "the first batch of a query is not delayed"
    await store(peer, stream, 12)
    assert await latest(begun) == await latest(begun) == begun, "four that are selected"
    assert (await latest(begun, ReadAllAvailable()))["sequence"] == 15, "a trigger that takes everything"
    await store(peer, stream, 3)
    second = await latest(begun)
    assert second["sequence"] == 18, "five"
    await store(peer, stream, 3)
    assert await latest(second) == second
    now[0] = 600.0
    third = await latest(second)
    assert third["sequence"] == 21, "ten minutes after the batch before"
    await store(peer, stream, 3)
    assert await latest(third) == third
    await asyncio.to_thread(one.prepareForTriggerAvailableNow)
    assert (await latest(third))["sequence"] == 24, "a query that ends waits for nothing"


@pytest.mark.parametrize("version", ["2.15.3"])
async def test_several_streams_and_such_as_appear_later(
    url: str, peer: RawPeer, reader: Callable[..., StreamReader], unique_name: Name
) -> None:
    stem = unique_name("SEVERAL")

    async def filled(name: str, count: int) -> dict[str, Any]:
        info = await peer.create_stream(name=f"{stem}_{name}", subjects=[f"{stem}_{name}.>"])
        await store(peer, f"{stem}_{name}", count)
        return {"created": info["created"], "messages": (), "sequence": count}

    def named(**offsets: dict[str, Any]) -> dict[str, Any]:
        return {"streams": {f"{stem}_{name}": offset for name, offset in offsets.items()}}

    a, b = await filled("A", 30), await filled("B", 3)
    one = several(url, streams=f"{stem}_*", partitions=3)
    first = await asyncio.to_thread(one.initialOffset)
    assert plain(first) == named(A={**a, "sequence": 0}, B={**b, "sequence": 0})
    limited = await asyncio.to_thread(one.latestOffset, first, ReadMaxRows(11))
    assert plain(limited) == named(A={**a, "sequence": 9}, B={**b, "sequence": 2}), "in the ratio of what waits"
    assert (await asyncio.to_thread(one.reportLatestOffset))["lag"] == 22
    c = await filled("C", 4)
    noticed = await asyncio.to_thread(one.latestOffset, limited, ReadAllAvailable())
    assert plain(noticed) == named(A=a, B=b, C={**c, "sequence": 0}), (
        "a batch that begins before it takes nothing of it"
    )
    whole = await asyncio.to_thread(one.latestOffset, noticed, ReadAllAvailable())
    assert plain(whole) == named(A=a, B=b, C=c)
    parts: list[Any] = await asyncio.to_thread(one.partitions, limited, noticed)
    assert {(part.stream[-1], part.first, part.last) for part in parts} == {("A", 10, 19), ("A", 20, 30), ("B", 3, 3)}
    parts = await asyncio.to_thread(one.partitions, noticed, whole)
    assert {part.stream for part in parts} == {f"{stem}_C"}
    rows = await asyncio.to_thread(
        lambda: [row for part in parts for batch in one.read(part) for row in batch.to_pylist()]
    )
    assert [row["sequence"] for row in rows] == [1, 2, 3, 4]
    await peer.api(f"STREAM.DELETE.{stem}_B")
    with pytest.raises(DataLostError, match=f"stream '{stem}_B': was deleted"):
        await asyncio.to_thread(one.latestOffset, whole, ReadAllAvailable())
    careless = several(url, streams=f"{stem}_*", failOnDataLoss="false")
    assert plain(await asyncio.to_thread(careless.latestOffset, whole, ReadAllAvailable())) == named(A=a, C=c)
    with pytest.raises(OptionError, match="option stream: the checkpoint is of a read with streams"):
        await asyncio.to_thread(reader().latestOffset, whole, ReadAllAvailable())
    for each in (one, careless):
        await asyncio.to_thread(each.stop)


def several(url: str, **options: Any) -> StreamReader:
    given = {"servers": url, **{name: str(value) for name, value in options.items()}}
    return StreamReader(ReadOptions.of(given), read_schema(spark_schema("sequence")))


async def test_where_a_query_begins(peer: RawPeer, reader: Callable[..., StreamReader]) -> None:
    stream = stream_of(reader())
    await store(peer, stream, 20)
    await peer.api(f"STREAM.PURGE.{stream}", {"seq": 6})
    time = (await peer.api(f"STREAM.MSG.GET.{stream}", {"seq": 11}))["message"]["time"]
    begins: list[tuple[dict[str, Any], int]] = [
        ({}, 6),
        ({"startSequence": 3}, 6),
        ({"startSequence": 9}, 9),
        ({"startSequence": 99}, 99),
        ({"startTime": time}, 11),
    ]
    for options, sequence in begins:
        offset = await asyncio.to_thread(reader(**options).initialOffset)
        assert offset["sequence"] == sequence - 1, options


async def sequences(reader: StreamReader, begin: dict[str, Any], end: dict[str, Any]) -> list[int]:
    """What the tasks of a batch read."""

    def read() -> list[int]:
        batches = [batch for part in reader.partitions(begin, end) for batch in reader.read(part)]
        return [row["sequence"] for batch in batches for row in batch.to_pylist()]

    return await asyncio.to_thread(read)


async def test_what_is_stored_before_a_start_time_that_is_to_come_is_left_out(
    peer: RawPeer, reader: Callable[..., StreamReader]
) -> None:
    stream = stream_of(reader())
    await store(peer, stream, 3)
    start = time.time_ns() + 3 * 10**9
    one = reader(startTime=rfc3339_nano(start).decode())
    first = await asyncio.to_thread(one.initialOffset)
    await store(peer, stream, 5)
    early = await asyncio.to_thread(one.latestOffset, first, ReadAllAvailable())
    await until(lambda: time.time_ns() > start)
    await store(peer, stream, 4)
    messages = [(await peer.api(f"STREAM.MSG.GET.{stream}", {"seq": at}))["message"] for at in range(1, 13)]
    wanted = [message["seq"] for message in messages if nanoseconds_of(message["time"]) >= start]
    assert early == first or 8 in wanted, "nothing to read before that time"
    end = await asyncio.to_thread(one.latestOffset, first, ReadAllAvailable())
    assert end["sequence"] == 12
    assert await sequences(one, first, end) == wanted
    # Begun again, the checkpoint has the time, and another one says nothing about what follows a position.
    again = reader(startTime=rfc3339_nano(time.time_ns() + 10**12).decode())
    assert await sequences(again, first, end) == wanted
    await store(peer, stream, 2)
    newer = await asyncio.to_thread(again.latestOffset, end, ReadAllAvailable())
    assert await sequences(again, end, newer) == [13, 14]


@pytest.mark.parametrize(
    ("config", "lost"),
    [
        ({"max_msgs_per_subject": 1}, False),
        ({"deny_purge": True}, False),
        ({"max_msgs_per_subject": 1, "max_age": 3600 * 10**9}, True),
        ({"deny_purge": True, "max_msgs": 100}, True),
        ({"deny_purge": True, "max_bytes": 100_000, "discard": "new"}, False),
        ({}, True),
    ],
    ids=str,
)
async def test_messages_missing_at_the_front_are_lost_if_limits_may_drop_them(
    config: dict[str, Any], lost: bool, peer: RawPeer, reader: Callable[..., StreamReader]
) -> None:
    stream = stream_of(reader())
    known = (await peer.api(f"STREAM.INFO.{stream}"))["config"]
    assert "error" not in await peer.api(f"STREAM.UPDATE.{stream}", known | config)
    one = reader()
    first = await asyncio.to_thread(one.initialOffset)
    await store(peer, stream, 3)
    planned = await asyncio.to_thread(one.latestOffset, first, ReadAllAvailable())
    parts = await asyncio.to_thread(one.partitions, first, planned)
    await store(peer, stream, 3)
    for sequence in range(1, 5):  # those that newer ones have not replaced
        await peer.api(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence})
    if lost:
        complaint = "messages 1 to 4 were removed unread .by a limit, a purge, or one by one: servers do not say"
        with pytest.raises(DataLostError, match=complaint):
            await asyncio.to_thread(one.latestOffset, first, ReadAllAvailable())
        return
    end = await asyncio.to_thread(one.latestOffset, first, ReadAllAvailable())
    assert await sequences(one, first, end) == [5, 6]
    assert await asyncio.to_thread(lambda: [list(one.read(part)) for part in parts]) == [[]], (
        "of a batch that has begun"
    )


async def test_what_no_filter_passes_makes_no_batch(peer: RawPeer, reader: Callable[..., StreamReader]) -> None:
    stream = stream_of(reader())
    one = reader(subjects=f"{stream}.wanted")
    first = await asyncio.to_thread(one.initialOffset)
    for limit in (ReadAllAvailable(), ReadMaxRows(5)):
        await store(peer, stream, 20)
        assert await asyncio.to_thread(one.latestOffset, first, limit) == first
        assert (await asyncio.to_thread(one.reportLatestOffset))["lag"] == 0
    await peer.store(f"{stream}.wanted".encode())
    await store(peer, stream, 1)
    end = await asyncio.to_thread(one.latestOffset, first, ReadAllAvailable())
    assert end["sequence"] == 42
    assert await sequences(one, first, end) == [41]
    await peer.api(f"STREAM.MSG.DELETE.{stream}", {"seq": 42})
    await peer.store(f"{stream}.wanted".encode())
    await peer.api(f"STREAM.MSG.DELETE.{stream}", {"seq": 43})
    assert await asyncio.to_thread(one.latestOffset, end, ReadAllAvailable()) == end, "nor does what was deleted"


async def test_what_no_filter_passes_is_not_taken_for_lost(peer: RawPeer, reader: Callable[..., StreamReader]) -> None:
    stream = stream_of(reader())
    config = (await peer.api(f"STREAM.INFO.{stream}"))["config"]
    assert "error" not in await peer.api(f"STREAM.UPDATE.{stream}", {**config, "max_msgs": 10})
    one = reader(subjects=f"{stream}.wanted")
    first = await asyncio.to_thread(one.initialOffset)
    await store(peer, stream, 10)
    assert await asyncio.to_thread(one.latestOffset, first, ReadAllAvailable()) == first
    await store(peer, stream, 10)
    with pytest.raises(DataLostError, match="messages 1 to 10 were removed unread"):
        await asyncio.to_thread(reader(subjects=f"{stream}.wanted").latestOffset, first, ReadAllAvailable())
    passed = await asyncio.to_thread(one.latestOffset, first, ReadAllAvailable())
    assert passed["sequence"] == 20, "so that it is known after a restart, too"
    assert await sequences(one, first, passed) == []
    assert await asyncio.to_thread(one.latestOffset, passed, ReadAllAvailable()) == passed
    another = reader(subjects=f"{stream}.wanted")
    assert await asyncio.to_thread(another.latestOffset, passed, ReadAllAvailable()) == passed
    await store(peer, stream, 11)
    with pytest.raises(DataLostError, match="messages 21 to 21 were removed unread"):
        await asyncio.to_thread(another.latestOffset, passed, ReadAllAvailable())


@pytest.mark.parametrize("version", ["2.15.3"])
@pytest.mark.parametrize("options", [{}, {"subjects": "{stream}.wanted"}])
async def test_while_nothing_waits_servers_are_asked_twice_a_second(
    options: dict[str, str], peer: RawPeer, reader: Callable[..., StreamReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock is the test's."""
    now = [0.0]

    async def sleep(seconds: float) -> None:
        now[0] += max(seconds, 0.0)

    monkeypatch.setattr(stream_reader, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(stream_reader, "asyncio", SimpleNamespace(sleep=sleep))
    stream = stream_of(reader())
    one = reader(**{name: value.format(stream=stream) for name, value in options.items()})
    first = await asyncio.to_thread(one.initialOffset)
    requests = await peer.collect("$JS.API.>")

    def ask() -> None:
        for _ in range(20):
            assert one.latestOffset(first, ReadAllAvailable()) == first
            one.reportLatestOffset()

    for stored in range(1, 4):
        await asyncio.to_thread(ask)
        await peer.flushed()
        asked = len([subject for subject, *_ in requests.messages if stream.encode() in subject])
        assert 19 * stored <= asked <= 2 * now[0] + 4, "what was asked last, and since"
        if options:
            await store(peer, stream, 1)


async def test_a_reader_travels_to_tasks_without_its_connection(reader: Callable[..., StreamReader]) -> None:
    one = reader()
    await asyncio.to_thread(one.initialOffset)
    travelled = pickle.loads(pickle.dumps(one))
    assert await asyncio.to_thread(travelled.initialOffset) == await asyncio.to_thread(one.initialOffset)
    await asyncio.to_thread(travelled.stop)


def test_pyspark_without_read_limits_is_enough() -> None:
    """As in PySpark 4.1, which has no module for them."""
    program = """
import sys
import pyspark.sql.datasource
sys.modules["pyspark.sql.streaming.datasource"] = None
from nats_bridge_spark.source.stream_reader import StreamReader
assert issubclass(StreamReader, pyspark.sql.datasource.DataSourceStreamReader)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
