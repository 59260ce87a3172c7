"""Backfills in tests: a source, and targets of the same name on servers of their own, so that copies can be equal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from nats_bridge.settings import Connection, Settings
from nats_bridge_spark.backfill.job import backfill
from nats_bridge_spark.backfill.request import BackfillRequest, EntrySummary
from nats_bridge_spark.capture.folder import Chunk
from nats_bridge_spark.capture.place import place_of
from nats_bridge_spark.capture.saved_stream import SAVED, CaptureExtent, saved_stream
from nats_bridge_spark.columns import CAPTURED, ddl
from nats_bridge_spark.progress import Shown
from tests.live.copied_messages import everything
from tests.live.raw_messages import RawPeer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Raw: TypeAlias = tuple[bytes, bytes, bytes]
Name: TypeAlias = Callable[[str], str]


async def backfilled(settings: Settings, rule: str = "rule", **wanted: Any) -> list[EntrySummary]:
    """Run a backfill; what it says."""
    places = partial(place_of, None)
    return await asyncio.to_thread(backfill, settings, BackfillRequest(rule, **wanted), places, Shown(quiet=True))


async def held(peer: RawPeer, stream: str) -> list[Raw]:
    """Subjects, header blocks and payloads of a stream, to the byte, in stored order."""
    return [(message.subject, message.header_block, message.payload) for message in await everything(peer, stream)]


async def captured(
    spark: SparkSession, peer: RawPeer, url: str, stream: str, folder: Path, *, first: int = 1, created: str = ""
) -> None:
    """Make a capture of a stream, with many small files."""
    info = await peer.api(f"STREAM.INFO.{stream}")
    last = int(info["state"]["last_seq"])

    def write() -> None:
        reader = spark.read.format("jetstream").schema(ddl(CAPTURED)).option("servers", url).option("stream", stream)
        rows = reader.option("startSequence", str(first)).load()
        rows.write.parquet(str(folder / Chunk(first, last, last - first + 1).folder))

    await asyncio.to_thread(write)
    extent = CaptureExtent(created or info["created"], (), first, (), first, first)
    saved = await asyncio.to_thread(lambda: asyncio.run(saved_stream(Connection(servers=(url,)), stream)))
    (folder / SAVED).write_text(replace(saved, extent=extent).to_json())
