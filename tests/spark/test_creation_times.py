"""Jobs and queries recognise a stream by its messages: servers before 2.14 change the creation time of streams."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from nats_bridge.settings import Connection
from nats_bridge_spark.capture.capturing import CaptureRequest, capture
from nats_bridge_spark.columns import read_schema
from nats_bridge_spark.errors import DataLostError
from nats_bridge_spark.progress import Progress
from nats_bridge_spark.sink.partition_write import PartitionWrite
from nats_bridge_spark.sink.stored_rows import TaskPlace
from nats_bridge_spark.source.read_options import ReadOptions
from nats_bridge_spark.source.stream_reader import StreamReader
from tests.live.creation_times import CHANGE_IT, change_creation_time
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Servers
from tests.spark.reading import spark_schema
from tests.spark.test_write_partition import ended, plan_of, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.parametrize("version", CHANGE_IT)


async def store(peer: RawPeer, count: int) -> None:
    for number in range(count):
        await peer.store(b"S.x", b"%d" % number)


async def recreate(peer: RawPeer, count: int) -> None:
    await peer.recreate_stream("S")
    await store(peer, count)


async def test_a_streaming_read(version: str, native_server: Servers, raw_peer: OpenPeer) -> None:
    async with native_server(version) as server:
        peer = await raw_peer(server.url)
        await peer.create_stream(name="S", subjects=["S.>"])
        reader = StreamReader(
            ReadOptions.of({"servers": server.url, "stream": "S"}), read_schema(spark_schema("sequence"))
        )

        def latest(begin: dict[str, Any]) -> dict[str, Any]:
            found = reader.latestOffset(json.loads(json.dumps(begin)), ReadAllAvailable())
            return json.loads(json.dumps(found))  # type: ignore[no-any-return]  # as a checkpoint keeps it

        def read(begin: dict[str, Any], end: dict[str, Any]) -> list[int]:
            parts = reader.partitions(begin, end)
            return [row["sequence"] for part in parts for batch in reader.read(part) for row in batch.to_pylist()]

        empty = await asyncio.to_thread(reader.initialOffset)
        peer = await change_creation_time(server, raw_peer, "S")
        await store(peer, 10)
        ten = await asyncio.to_thread(latest, empty)
        planned = await asyncio.to_thread(reader.partitions, empty, ten)
        peer = await change_creation_time(server, raw_peer, "S")
        assert await asyncio.to_thread(latest, ten) == ten, "no batch without messages"
        assert await asyncio.to_thread(lambda: [batch for part in planned for batch in reader.read(part)])
        await store(peer, 5)
        await asyncio.to_thread(reader.latestOffset, ten, ReadMaxRows(2))
        assert (await asyncio.to_thread(reader.reportLatestOffset))["lag"] == 3
        more = await asyncio.to_thread(latest, ten)
        assert await asyncio.to_thread(read, ten, more) == [11, 12, 13, 14, 15]
        without = {name: ten[name] for name in ("created", "sequence")}
        await recreate(peer, 20)
        for begin in (more, without):
            with pytest.raises(DataLostError, match="was recreated at"):
                await asyncio.to_thread(latest, begin)
        with pytest.raises(DataLostError, match="was recreated at"):
            await asyncio.to_thread(lambda: list(reader.read(planned[0])))
        await asyncio.to_thread(reader.stop)


@pytest.mark.parametrize("before", [0, 3])
async def test_a_write(before: int, version: str, native_server: Servers, raw_peer: OpenPeer) -> None:
    async with native_server(version) as server:
        peer = await raw_peer(server.url)
        await peer.create_stream(name="S", subjects=["S.>"])
        await store(peer, before)
        writing = PartitionWrite(plan_of(server.url, "S"), TaskPlace(0, 0))
        try:
            await ended(writing, rows("S", before, 100))
            peer = await change_creation_time(server, raw_peer, "S")
            await ended(writing, rows("S", 100, 200))
            assert (await peer.api("STREAM.INFO.S"))["state"]["messages"] == 200
            await peer.recreate_stream("S")
            server.restart()
            with pytest.raises(DataLostError, match="stream 'S' was recreated while it was written to"):
                await ended(writing, rows("S", 200, 300))
        finally:
            await writing.close()


async def test_a_capture(
    version: str, native_server: Servers, raw_peer: OpenPeer, spark: SparkSession, tmp_path: Path
) -> None:
    async with native_server(version) as server:
        peer = await raw_peer(server.url)
        await peer.create_stream(name="S", subjects=["S.>"])
        wanted = CaptureRequest(
            connection=Connection(servers=(server.url,)), stream="S", directory=str(tmp_path / "kept")
        )

        async def captured() -> int:
            return (await asyncio.to_thread(capture, spark, wanted, Progress("capture S"))).messages

        for _ in range(2):
            await store(peer, 5)
            assert await captured() == 5
            peer = await change_creation_time(server, raw_peer, "S")
        await recreate(peer, 20)
        with pytest.raises(DataLostError, match="was recreated at"):
            await captured()
