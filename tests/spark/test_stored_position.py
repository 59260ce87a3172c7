"""The progress of a task that reads its own history."""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from nats_bridge.errors import BridgeError
from nats_bridge.settings import Connection
from nats_bridge_spark.backfill.spark_work import StoredPosition
from nats_bridge_spark.connections import connected
from nats_bridge_spark.progress import watched
from nats_bridge_spark.source.loop_thread import LoopThread
from nats_transforms import header_block
from nats_transforms.source_record import SourceRecord
from tests.live.raw_messages import RawPeer
from tests.spark.waiting import seen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def record_of(block: bytes) -> SourceRecord | None:
    at = header_block.read(block, b"At")
    return SourceRecord(b"SOURCE", int(at)) if at else None


async def test_the_newest_result_shows_how_much_of_the_history_is_done(
    peer: RawPeer, url: str, unique_name: Callable[[str], str]
) -> None:
    stream = unique_name("RESULTS")
    await peer.create_stream(name=stream, subjects=[stream])

    async def store(block: bytes) -> None:
        await peer.store(stream.encode(), block=block)

    with LoopThread() as loop:
        opening = connected(Connection(servers=(url,)))
        position = StoredPosition(loop, loop.run(opening.__aenter__()), stream, record_of, 10)
        try:
            assert await asyncio.to_thread(position) == 0, "nothing is stored"
            await store(b"NATS/1.0\r\nAt: 14\r\n\r\n")
            assert await asyncio.to_thread(position) == 5, "from 10 to 14"
            await store(b"")
            assert await asyncio.to_thread(position) == 5, "the newest is another client's"
            await store(b"NATS/1.0\r\nAt: 12\r\n\r\n")
            assert await asyncio.to_thread(position) == 5, "sent again"
            await peer.api(f"STREAM.DELETE.{stream}")
            with pytest.raises(BridgeError, match="stream not found"):
                await asyncio.to_thread(position)
        finally:
            loop.run(opening.__aexit__(None, None, None))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def test_what_the_job_counts_is_shown_until_it_knows_better(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    counts = iter((4,))  # and then it fails, which does no harm
    with watched(spark, "a job", total=9) as progress:
        progress.enter("copying", count=lambda: next(counts))
        await seen(lambda: terminal.getvalue().count("\r\x1b[Ka job: copying, 4 of 9 (44 %)") > 1)
        progress.add(9)
        await seen(lambda: "\r\x1b[Ka job: copying, 9 of 9 (100 %)" in terminal.getvalue())
    assert terminal.getvalue().split("\n")[0].rpartition("\x1b[K")[2].startswith("a job: 9 messages in ")
