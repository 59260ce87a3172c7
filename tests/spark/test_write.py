"""Batch write: every row a message of the stream, once, in order, exactly as the row says; or an error that names it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from conformance.servers import SharedServers
from pipeline.errors import OptionError, PipelineError, RowError, SchemaError, UnreachableError, told
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.stored_messages import stored_messages

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

VERSIONS = ("2.9.10", "2.10.27", "2.15.1")
ROWS = "subject string, data binary"


@pytest.fixture
def version() -> str:
    return "2.10.27"


@pytest.fixture
async def url(version: str, servers: SharedServers) -> str:
    return await servers.url(version)


@pytest.fixture
async def peer(url: str, raw_peer: OpenPeer) -> RawPeer:
    return await raw_peer(url)


@pytest.fixture
async def stream(peer: RawPeer, unique_name: Callable[[str], str]) -> str:
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
    with pytest.raises(Exception) as caught:
        write(frame, stream, **options)
    found = told(caught.value)
    assert found is not None, caught.value
    return found


async def _last(peer: RawPeer, stream: str) -> int:
    return int((await peer.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"])


@pytest.mark.parametrize("version", VERSIONS)
async def test_rows_become_messages_in_order(
    spark: SparkSession, write: Callable[..., None], peer: RawPeer, stream: str
) -> None:
    write(numbered(spark, stream, 5000), stream)
    assert await _last(peer, stream) == 5000
    found = await stored_messages(peer, stream, 5000)
    assert [(m.subject, m.payload) for m in found] == [
        (f"{stream}.{i}".encode(), f"message {i}".encode()) for i in range(5000)
    ]
    blocks = {message.header_block for message in found}
    assert len(blocks) == 5000
    assert all(block.startswith(b"NATS/1.0\r\nNats-Msg-Id: spark-") for block in blocks)
