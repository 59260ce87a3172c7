"""Backfills in tests: a source, and targets of the same name on servers of their own, so that copies can be equal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from nats_bridge.settings import Settings
from nats_bridge_spark.backfill.job import backfill
from nats_bridge_spark.backfill.request import BackfillRequest, EntrySummary
from nats_bridge_spark.capture.manifest import MANIFEST, Capture, Chunk
from nats_bridge_spark.columns import CAPTURED, ddl
from nats_bridge_spark.progress import Shown
from tests.live.copied_messages import everything
from tests.live.raw_messages import RawPeer
from tests.spark.engines import Spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Raw: TypeAlias = tuple[bytes, bytes, bytes]
Name: TypeAlias = Callable[[str], str]


async def backfilled(session: Spark, settings: Settings, rule: str = "rule", **wanted: Any) -> list[EntrySummary]:
    """Run a backfill; what it says."""
    return await asyncio.to_thread(
        backfill, settings, BackfillRequest(rule, **wanted), lambda _: session, Shown(quiet=True)
    )


async def held(peer: RawPeer, stream: str) -> list[Raw]:
    """Subjects, header blocks and payloads of a stream, to the byte, in stored order."""
    return [(message.subject, message.header_block, message.payload) for message in await everything(peer, stream)]


async def captured(
    spark: SparkSession, peer: RawPeer, url: str, stream: str, folder: Path, *, first: int = 1, created: str = ""
) -> None:
    """Make a capture of a stream, with one file that has its messages backwards."""
    info = await peer.api(f"STREAM.INFO.{stream}")
    last = int(info["state"]["last_seq"])

    def write() -> int:
        reader = spark.read.format("jetstream").schema(ddl(CAPTURED)).option("servers", url).option("stream", stream)
        rows = (
            reader.option("startSequence", str(first))
            .load()
            .coalesce(1)
            .sortWithinPartitions("sequence", ascending=False)
        )
        rows.write.parquet(str(folder / "chunk"))
        return rows.count()

    messages = await asyncio.to_thread(write)
    chunk = Chunk("chunk", first, last, messages)
    capture = Capture(stream, created or info["created"], "2.10.27", "", (), first, last + 1, (chunk,))
    (folder / MANIFEST).write_text(capture.to_json())
