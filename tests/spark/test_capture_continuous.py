"""A capture that runs until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet
import pytest

from nats_bridge.settings import Connection
from nats_bridge_spark.capture.capturing import CaptureRequest, CaptureResult, capture, saved_stream
from nats_bridge_spark.capture.folder import capture_in
from nats_bridge_spark.capture.place import place_of
from nats_bridge_spark.errors import DataLostError, PipelineError
from nats_bridge_spark.progress import Progress
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Name, Servers, SharedServers
from tests.spark.engines import Spark
from tests.spark.waiting import seen

VERSION = "2.10.27"


@dataclass
class Heard(Progress):
    """Progress that keeps what it would write."""

    said: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.said.append(text)


class Running:
    """A continuous capture in a thread of its own."""

    def __init__(self, session: Spark, url: str, stream: str, kept: Path) -> None:
        self.kept = kept
        self.progress = Heard(f"capture {stream}")
        wanted = CaptureRequest(Connection(servers=(url,)), stream, str(kept), interval=0.1)
        self.task: asyncio.Task[CaptureResult] = asyncio.create_task(
            asyncio.to_thread(capture, session, wanted, self.progress)
        )

    def held(self) -> int:
        if self.task.done():
            self.task.result()
        capture = capture_in(place_of(str(self.kept)))
        return capture.messages if capture else 0

    async def stop(self) -> CaptureResult:
        self.progress.stopping.set()
        return await self.task

    def sequences(self) -> list[int]:
        files = sorted((self.kept / "messages").rglob("*.parquet"))
        return [
            sequence for file in files for sequence in pyarrow.parquet.ParquetFile(file).read()["sequence"].to_pylist()
        ]


@contextlib.asynccontextmanager
async def running(session: Spark, url: str, stream: str, kept: Path) -> AsyncIterator[Running]:
    job = Running(session, url, stream, kept)
    try:
        yield job
    finally:
        job.progress.stopping.set()
        with contextlib.suppress(Exception):
            await job.task


async def store(peer: RawPeer, stream: str, messages: int) -> None:
    for _ in range(messages):
        await peer.store(stream.encode(), b"x")


async def test_new_messages_come_as_they_are_stored(
    session: Spark, servers: SharedServers, raw_peer: OpenPeer, tmp_path: Path, unique_name: Name
) -> None:
    stream, url = unique_name("CONTINUOUS"), await servers.url(VERSION)
    peer = await raw_peer(url)
    await peer.create_stream(name=stream, subjects=[stream])
    async with running(session, url, stream, tmp_path / "kept") as job:
        await store(peer, stream, 5)
        await seen(lambda: job.held() == 5)
        await store(peer, stream, 5)
        await seen(lambda: job.held() == 10)
        result = await job.stop()
    assert (result.messages, result.first_sequence, result.last_sequence, result.next_sequence) == (10, 1, 10, 11)
    assert job.sequences() == list(range(1, 11))


async def test_a_server_that_goes_and_comes_back(
    session: Spark, native_server: Servers, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    server = native_server(VERSION).start()
    peer = await raw_peer(server.url)
    await peer.create_stream(name="S", subjects=["S"])
    await store(peer, "S", 5)
    async with running(session, server.url, "S", tmp_path / "kept") as job:
        await seen(lambda: job.held() == 5)
        await asyncio.to_thread(server.kill)
        await seen(lambda: any("trying again in 0.1 s" in line for line in job.progress.said))
        await asyncio.to_thread(server.restart)
        peer = await raw_peer(server.url)
        await store(peer, "S", 5)
        await seen(lambda: job.held() == 10)
        await job.stop()
    assert job.sequences() == list(range(1, 11))


async def test_a_stream_that_is_gone_for_a_moment_is_waited_for(servers: SharedServers) -> None:
    """As `capture --continuous` waits for any failure of this type, until the next round says what happened."""
    with pytest.raises(PipelineError, match=r"stream 'GONE': not found at") as caught:
        await saved_stream(Connection(servers=(await servers.url(VERSION),)), "GONE")
    assert type(caught.value) is PipelineError


async def test_a_stream_that_is_recreated_ends_it(
    session: Spark, servers: SharedServers, raw_peer: OpenPeer, tmp_path: Path, unique_name: Name
) -> None:
    stream, url = unique_name("CONTINUOUS"), await servers.url(VERSION)
    peer = await raw_peer(url)
    # In memory: a file store that is created right behind its deletion may hold the old messages.
    await peer.create_stream(name=stream, subjects=[stream], storage="memory")
    await store(peer, stream, 5)
    async with running(session, url, stream, tmp_path / "kept") as job:
        await seen(lambda: job.held() == 5)
        await peer.recreate_stream(stream)
        with pytest.raises(DataLostError, match=r"was recreated"):
            await job.task
    assert job.sequences() == [1, 2, 3, 4, 5]
