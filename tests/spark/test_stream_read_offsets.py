"""Offsets of a streaming read, asked for as Spark asks, without Spark."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from nats_bridge.pipeline.errors import DataLostError
from nats_bridge.pipeline.source.read_options import ReadOptions
from nats_bridge.pipeline.source.schema import ReadSchema
from nats_bridge.pipeline.source.stream_reader import StreamReader
from tests.live.raw_messages import RawPeer
from tests.spark.reading import spark_schema


@pytest.fixture(params=["2.9.10", "2.10.27", "2.15.1"])
def version(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
async def reader(
    url: str, peer: RawPeer, unique_name: Callable[[str], str]
) -> AsyncIterator[Callable[..., StreamReader]]:
    made: list[StreamReader] = []
    stream = unique_name("OFFSETS")
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"])

    def make(**options: Any) -> StreamReader:
        given = {"servers": url, "stream": stream, **{name: str(value) for name, value in options.items()}}
        made.append(StreamReader(ReadOptions.of(given), ReadSchema.of(spark_schema("sequence"))))
        return made[-1]

    yield make
    for one in made:
        await asyncio.to_thread(one.stop)


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
    assert whole == {"created": first["created"], "sequence": 30}
    assert await asyncio.to_thread(one.reportLatestOffset) == whole
    assert await asyncio.to_thread(one.latestOffset) == whole, "as PySpark 4.1 asks"
    some = await asyncio.to_thread(one.latestOffset, first, ReadMaxRows(7))
    assert some["sequence"] == 7
    parts: Any = await asyncio.to_thread(one.partitions, some, whole)
    assert [(part.first, part.last) for part in parts] == [(8, 30)]


async def test_the_limit_is_in_rows_whatever_lies_between(peer: RawPeer, reader: Callable[..., StreamReader]) -> None:
    one = reader()
    await store(peer, stream_of(one), 90)
    selecting = reader(subjects=f"{stream_of(one)}.2")
    first = await asyncio.to_thread(selecting.initialOffset)
    limited = await asyncio.to_thread(selecting.latestOffset, first, ReadMaxRows(10))
    assert 27 <= limited["sequence"] <= 32, "nine or ten of those that are selected"
    await peer.api(f"STREAM.PURGE.{stream_of(one)}", {"seq": 81})
    careless = reader(failOnDataLoss="false")
    limited = await asyncio.to_thread(careless.latestOffset, first, ReadMaxRows(10))
    assert limited["sequence"] == 90
    with pytest.raises(DataLostError, match="messages 1 to 80 were removed"):
        await asyncio.to_thread(one.latestOffset, first, ReadMaxRows(10))


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
from nats_bridge.pipeline.source.stream_reader import StreamReader
assert issubclass(StreamReader, pyspark.sql.datasource.DataSourceStreamReader)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
