"""Faults during a read: the rest comes, each message once, or one error names what is missing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pyarrow as pa
import pytest

from nats_bridge_spark.errors import DataLostError, PipelineError, UnreachableError, reported
from nats_bridge_spark.source import range_reader
from tests.live.cut_wire import CutWire, cut_wire
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Name, Servers
from tests.spark.reading import Read, spark_schema

_COLUMNS = spark_schema("sequence", "data")


@pytest.fixture(params=["2.9.10", "2.10.27", "2.15.3"])
def version(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
async def wire(url: str) -> AsyncIterator[CutWire]:
    async with cut_wire(url) as wire:
        yield wire


@pytest.fixture
def stream(unique_name: Name) -> str:
    return unique_name("FAULT")


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows come by the hundred, so that much of a read of a thousand is still to come after the first ones."""
    monkeypatch.setattr(range_reader, "_ROWS", 100)


async def _fill(peer: RawPeer, stream: str, count: int) -> None:
    """Messages so large that a server sends a small part of a thousand ahead."""
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"])
    for _ in range(1, count):
        peer.publish(f"{stream}.x".encode(), bytes(10_000))
    assert (await peer.store(f"{stream}.x".encode()))["seq"] == count


def _sequences(batches: list[pa.RecordBatch]) -> list[int]:
    return [sequence for batch in batches for sequence in batch.column("sequence").to_pylist()]


class Reading:
    """A running read."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self.sequences: list[int] = []

    @classmethod
    async def begun(cls, read: Read) -> Reading:
        """Planned, and its first batch read."""
        await read.plan()
        reading = cls(read.batches())
        first = await asyncio.to_thread(next, reading._batches)
        reading.sequences += _sequences([first])
        return reading

    async def rest(self) -> list[int]:
        """All sequences."""
        self.sequences += _sequences(await asyncio.to_thread(list, self._batches))
        return self.sequences


async def test_a_cut_connection_costs_and_doubles_nothing(wire: CutWire, peer: RawPeer, stream: str) -> None:
    await _fill(peer, stream, 1000)
    reading = await Reading.begun(Read(wire.url, stream, _COLUMNS, partitions=1))
    wire.cut()
    assert await reading.rest() == list(range(1, 1001))


async def test_a_lost_consumer_costs_and_doubles_nothing(url: str, peer: RawPeer, stream: str) -> None:
    await _fill(peer, stream, 1000)
    reading = await Reading.begun(Read(url, stream, _COLUMNS, partitions=1))
    for name in (await peer.api(f"CONSUMER.NAMES.{stream}"))["consumers"]:
        await peer.api(f"CONSUMER.DELETE.{stream}.{name}")
    assert await reading.rest() == list(range(1, 1001))


async def test_a_read_leaves_no_consumer_behind(url: str, peer: RawPeer, stream: str) -> None:
    await _fill(peer, stream, 1000)
    reading = await Reading.begun(Read(url, stream, _COLUMNS, partitions=1))
    await asyncio.to_thread(reading._batches.close)  # type: ignore[attr-defined]  # they are a generator's
    assert not (await peer.api(f"CONSUMER.NAMES.{stream}"))["consumers"]


async def test_messages_that_vanish_one_by_one_are_neither_lost_nor_awaited(
    url: str, peer: RawPeer, stream: str
) -> None:
    await _fill(peer, stream, 1000)
    reading = await Reading.begun(Read(url, stream, _COLUMNS, partitions=1))
    for sequence in range(901, 1001):
        await peer.api(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence, "no_erase": True})
    assert await reading.rest() == list(range(1, 901))


async def test_a_purge_between_plan_and_read_is_a_loss(url: str, peer: RawPeer, stream: str) -> None:
    await _fill(peer, stream, 50)
    careful = await Read(url, stream, _COLUMNS, partitions=2).plan()
    careless = await Read(url, stream, _COLUMNS, partitions=2, failOnDataLoss="false").plan()
    await peer.api(f"STREAM.PURGE.{stream}", {"seq": 31})
    with pytest.raises(DataLostError) as caught:
        await careful.rows()
    assert f"stream '{stream}': messages 1 to 25 were removed" in str(caught.value)
    assert "now begins at 31" in str(caught.value)
    assert await careless.sequences() == list(range(31, 51))


async def test_a_purge_while_it_is_read_is_a_loss(url: str, peer: RawPeer, stream: str) -> None:
    await _fill(peer, stream, 1000)
    reading = await Reading.begun(Read(url, stream, _COLUMNS, partitions=1))
    careless = await Reading.begun(Read(url, stream, _COLUMNS, partitions=1, failOnDataLoss="false"))
    await peer.api(f"STREAM.PURGE.{stream}")
    with pytest.raises(DataLostError, match="to 1000 were removed unread"):
        await reading.rest()
    found = await careless.rest()
    assert found == list(range(1, len(found) + 1))
    assert len(found) < 1000


async def test_a_recreated_stream_is_another_one(url: str, peer: RawPeer, stream: str) -> None:
    await _fill(peer, stream, 20)
    read = await Read(url, stream, _COLUMNS, failOnDataLoss="false").plan()
    await peer.api(f"STREAM.DELETE.{stream}")
    with pytest.raises(PipelineError, match=f"stream '{stream}': not found"):
        await read.rows()
    await _fill(peer, stream, 20)
    with pytest.raises(DataLostError, match="was recreated at"):
        await read.rows()


async def test_a_server_that_goes_away_is_awaited_and_a_later_run_works(
    version: str, native_server: Servers, raw_peer: OpenPeer, stream: str
) -> None:
    async with native_server(version) as server:
        peer = await raw_peer(server.url)
        await _fill(peer, stream, 1000)
        read = Read(server.url, stream, _COLUMNS, partitions=1, patience=1, connectTimeout=1)
        reading = await Reading.begun(read)
        await asyncio.to_thread(server.stop)
        with pytest.raises(UnreachableError) as caught:
            await reading.rest()
        error = reported(caught.value)
        assert error is not None
        assert "run the job again" in str(error)
        with pytest.raises(UnreachableError, match="no server answers"):
            await read.rows()
        await asyncio.to_thread(server.start)
        assert await read.sequences() == list(range(1, 1001))


async def test_a_user_who_may_not_read_gets_the_permissions_to_grant(
    native_server: Servers, raw_peer: OpenPeer, stream: str, tmp_path: Any
) -> None:
    config = """
        accounts { A: { jetstream: enabled, users: [
            { user: all, password: all },
            { user: some, password: some, permissions: { publish: { deny: ["$JS.FC.>"] } } },
        ] } }
        no_auth_user: all
    """
    (tmp_path / "password").write_text("some")
    async with native_server("2.10.27", config=config) as server:
        await _fill(await raw_peer(server.url), stream, 1000)
        read = Read(server.url, stream, _COLUMNS, user="some", passwordFile=tmp_path / "password")
        with pytest.raises(PipelineError, match=r"may not publish to \$JS\.FC\."):
            await read.rows()
