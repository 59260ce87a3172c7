"""Streaming read: each message once, also when a query ends in the middle and begins again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nats_bridge_spark.errors import DataLostError, OptionError, PipelineError, reported
from tests.live.cut_wire import CutWire, cut_wire
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Name, SharedServers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class InjectedError(Exception):
    """What a test makes a query fail with."""


class Query:
    """A streaming query that keeps the sequences of each batch."""

    def __init__(self, spark: SparkSession, url: str, stream: str, checkpoint: Path, **options: Any) -> None:
        self.checkpoint = str(checkpoint)
        reader = spark.readStream.format("jetstream").option("servers", url)
        for name, value in ({"stream": stream, **options} if stream else options).items():
            reader = reader.option(name, str(value))
        self.frame = reader.schema("sequence bigint").load()
        self.batches: list[list[int]] = []
        self.lags: list[int] = []
        self.before: Callable[[int], None] = lambda number: None

    def _keep(self, batch: DataFrame, number: int) -> None:
        self.before(number)
        self.batches.append(sorted(row.sequence for row in batch.collect()))

    def _run(self) -> None:
        while True:
            try:
                return self._run_once()
            except Exception as error:
                # Spark gives the process that asks for offsets ten seconds to start, whatever else the machine does.
                if "Python worker failed to connect back" not in str(error):
                    raise

    def _run_once(self) -> None:
        query = (
            self.frame.writeStream.foreachBatch(self._keep)
            .option("checkpointLocation", self.checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
            ends = [source.latestOffset for progress in query.recentProgress for source in progress.sources]
            # Spark names no end for a batch of an earlier run that it repeats.
            self.lags = [found["lag"] for end in ends if (found := json.loads(end)) is not None]
        finally:
            query.stop()

    async def run(self) -> list[list[int]]:
        """Handle what there is; the batches that held something."""
        await asyncio.to_thread(self._run)
        return [batch for batch in self.batches if batch]

    async def refused(self) -> PipelineError:
        """The error of ours that it ends with."""
        with pytest.raises(Exception, match="nats-bridge says") as caught:
            await self.run()
        error = reported(caught.value)
        assert error is not None
        return error


@pytest.fixture
async def wire(url: str) -> AsyncIterator[CutWire]:
    async with cut_wire(url) as wire:
        yield wire


@pytest.fixture
def stream(unique_name: Name) -> str:
    return unique_name("FOLLOW")


async def filled(peer: RawPeer, stream: str, count: int) -> None:
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"])
    await store(peer, stream, count)


async def store(peer: RawPeer, stream: str, count: int) -> None:
    for number in range(count):
        await peer.store(f"{stream}.{number % 4}".encode(), b"%d" % number)


@pytest.mark.parametrize("version", ["2.9.10", "2.10.27", "2.15.3"])
async def test_batches_are_limited_and_a_query_that_failed_resumes_where_it_was(
    spark: SparkSession, servers: SharedServers, version: str, raw_peer: OpenPeer, stream: str, tmp_path: Path
) -> None:
    url = await servers.url(version)
    peer = await raw_peer(url)
    await filled(peer, stream, 250)

    def fail(number: int) -> None:
        if number == 1:
            raise InjectedError

    first = Query(spark, url, stream, tmp_path, maxRowsPerTrigger=100)
    first.before = fail
    with pytest.raises(Exception, match="InjectedError"):
        await first.run()
    assert first.batches == [list(range(1, 101))]
    await store(peer, stream, 10)
    second = Query(spark, url, stream, tmp_path, maxRowsPerTrigger=100)
    assert await second.run() == [list(range(101, 201)), list(range(201, 261))]
    # Nothing new: nothing is read again.
    assert await Query(spark, url, stream, tmp_path).run() == []


async def test_a_run_ends_at_the_end_seen_at_its_begin_with_one_connection(
    spark: SparkSession, wire: CutWire, peer: RawPeer, stream: str, tmp_path: Path
) -> None:
    await filled(peer, stream, 40)
    loop = asyncio.get_running_loop()
    query = Query(spark, wire.url, stream, tmp_path, maxRowsPerTrigger=10)
    query.before = lambda _: asyncio.run_coroutine_threadsafe(store(peer, stream, 3), loop).result()
    assert await query.run() == [list(range(n, n + 10)) for n in (1, 11, 21, 31)]
    assert wire.connections <= 1 + 4, "the driver's, and one for each task"
    query = Query(spark, wire.url, stream, tmp_path, maxRowsPerTrigger=10)
    assert await query.run() == [list(range(41, 51)), [51, 52]]


async def test_filters_and_gaps_make_neither_empty_nor_large_batches(
    spark: SparkSession, url: str, peer: RawPeer, stream: str, tmp_path: Path
) -> None:
    await filled(peer, stream, 400)
    for sequence in range(100, 180):
        await peer.api(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence, "no_erase": True})
    query = Query(spark, url, stream, tmp_path, maxRowsPerTrigger=20, subjects=f"{stream}.1", startSequence=11)
    batches = await query.run()
    assert [s for batch in batches for s in batch] == [s for s in range(11, 401) if s % 4 == 2 and not 100 <= s < 180]
    assert all(18 <= len(batch) <= 20 for batch in batches[:-1])
    assert len(query.batches) == len(batches), "no batch was empty"


async def test_several_streams_are_one_query_and_its_progress_has_the_lag(
    spark: SparkSession, url: str, peer: RawPeer, stream: str, tmp_path: Path
) -> None:
    await filled(peer, f"{stream}_A", 60)
    await filled(peer, f"{stream}_B", 6)
    query = Query(spark, url, "", tmp_path, streams=f"{stream}_*", maxRowsPerTrigger=33)
    assert await query.run() == [sorted([*range(1, 31), *range(1, 4)]), sorted([*range(31, 61), *range(4, 7)])]
    assert query.lags[:2] == [33, 0]


async def test_what_is_lost_is_an_error_with_a_remedy(
    spark: SparkSession, url: str, peer: RawPeer, stream: str, tmp_path: Path
) -> None:
    await filled(peer, stream, 20)
    assert await Query(spark, url, stream, tmp_path).run() == [list(range(1, 21))]
    await store(peer, stream, 20)
    await peer.api(f"STREAM.PURGE.{stream}", {"seq": 31})
    error = await Query(spark, url, stream, tmp_path).refused()
    assert type(error) is DataLostError
    assert "messages 21 to 30 were removed unread" in str(error)
    assert "failOnDataLoss=false" in str(error)
    careless = Query(spark, url, stream, tmp_path, failOnDataLoss="false")
    assert await careless.run() == [list(range(31, 41))]
    await peer.api(f"STREAM.DELETE.{stream}")
    await filled(peer, stream, 50)
    error = await Query(spark, url, stream, tmp_path, failOnDataLoss="false").refused()
    assert type(error) is DataLostError
    assert "was recreated" in str(error)
    assert "begin with a new checkpoint location" in str(error)
    assert await Query(spark, url, stream, tmp_path / "new").run() == [list(range(1, 51))]


async def test_an_end_is_refused_where_there_is_none(
    spark: SparkSession, url: str, peer: RawPeer, stream: str, tmp_path: Path
) -> None:
    await filled(peer, stream, 1)
    error = await Query(spark, url, stream, tmp_path, endSequence=5).refused()
    assert type(error) is OptionError
    assert "option endSequence: a streaming read has no end" in str(error)
