"""Batch read: every message that the stream holds, once, exactly as it is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from conformance.servers import SharedServers
from tests.live.raw_messages import OpenPeer, RawPeer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VERSIONS = ("2.9.10", "2.10.27", "2.15.1")


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
async def peer(version: str, servers: SharedServers, raw_peer: OpenPeer) -> RawPeer:
    return await raw_peer(await servers.url(version))


@pytest.fixture
async def frame(spark: SparkSession, version: str, servers: SharedServers) -> Callable[..., DataFrame]:
    url = await servers.url(version)

    def read(stream: str, schema: str = "", **options: object) -> DataFrame:
        reader = spark.read.format("jetstream").option("servers", url).option("stream", stream)
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return (reader.schema(schema) if schema else reader).load()

    return read


async def test_all_columns_are_exact(
    frame: Callable[..., DataFrame], peer: RawPeer, unique_name: Callable[[str], str]
) -> None:
    stream = unique_name("READ")
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"])
    block = b"NATS/1.0\r\nTag: a\r\ntag:  B \r\nTag: a\r\n\r\n"
    for i in range(1000):
        await peer.store(f"{stream}.{i}".encode(), bytes([i % 256, 0, 255]), block if i % 3 == 0 else b"")
    rows = sorted(frame(stream, partitions=3).collect(), key=lambda row: row.sequence)
    assert [row.sequence for row in rows] == list(range(1, 1001))
    assert rows[0].headers == [("Tag", "a"), ("tag", "B"), ("Tag", "a")]
    assert rows[1].headers == []
