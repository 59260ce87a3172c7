"""Streaming read: each message once, also when a query ends in the middle and begins again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from conformance.servers import SharedServers
from tests.live.raw_messages import OpenPeer, RawPeer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class InjectedError(Exception):
    """What a test makes a query fail with."""


@pytest.fixture(params=["2.9.10", "2.10.27", "2.15.1"])
def version(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
async def peer(version: str, servers: SharedServers, raw_peer: OpenPeer) -> RawPeer:
    return await raw_peer(await servers.url(version))


class Query:
    """A streaming query that keeps the sequences of each batch."""

    def __init__(self, spark: SparkSession, url: str, stream: str, checkpoint: Path, **options: Any) -> None:
        self.spark, self.checkpoint = spark, str(checkpoint)
        reader = spark.readStream.format("jetstream").option("servers", url).option("stream", stream)
        for name, value in options.items():
            reader = reader.option(name, str(value))
        self.frame = reader.load()
        self.batches: list[list[int]] = []
        self.fails_before: int | None = None

    def _keep(self, batch: DataFrame, number: int) -> None:
        if number == self.fails_before:
            raise InjectedError
        self.batches.append(sorted(row.sequence for row in batch.select("sequence").collect()))

    async def run(self) -> list[list[int]]:
        """Handle what there is; the batches so far."""
        query = (
            self.frame.writeStream.foreachBatch(self._keep)
            .option("checkpointLocation", self.checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        try:
            await asyncio.to_thread(query.awaitTermination)
        finally:
            query.stop()
        return self.batches


async def filled(peer: RawPeer, stream: str, count: int) -> None:
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"])
    await store(peer, stream, count)


async def store(peer: RawPeer, stream: str, count: int) -> None:
    for number in range(count):
        await peer.store(f"{stream}.{number % 4}".encode(), b"%d" % number)


async def test_batches_are_limited_and_a_query_that_failed_goes_on_where_it_was(
    spark: SparkSession,
    servers: SharedServers,
    version: str,
    peer: RawPeer,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    stream, url = unique_name("FOLLOW"), await servers.url(version)
    await filled(peer, stream, 250)
    first = Query(spark, url, stream, tmp_path, maxRowsPerTrigger=100)
    first.fails_before = 1
    with pytest.raises(Exception, match="InjectedError"):
        await first.run()
    assert first.batches == [list(range(1, 101))]
    await store(peer, stream, 10)
    second = Query(spark, url, stream, tmp_path, maxRowsPerTrigger=100)
    assert await second.run() == [list(range(101, 201)), list(range(201, 261))]
