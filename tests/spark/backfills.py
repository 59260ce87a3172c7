"""Backfills in tests: an origin, and targets of the same name on servers of their own, so that copies can be equal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from bridge.settings import Settings
from pipeline.backfill.job import backfill
from pipeline.backfill.request import Request
from pipeline.backfill.summary import EntrySummary
from tests.live.copied_messages import everything
from tests.live.raw_messages import RawPeer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Raw: TypeAlias = tuple[bytes, bytes, bytes]


async def backfilled(spark: SparkSession, settings: Settings, rule: str = "rule", **wanted: Any) -> list[EntrySummary]:
    """Run a backfill; what it says."""
    return await asyncio.to_thread(backfill, settings, Request(rule, **wanted), lambda: spark, quiet=True)


async def held(peer: RawPeer, stream: str) -> list[Raw]:
    """Subjects, header blocks and payloads of a stream, to the byte, in stored order."""
    return [(message.subject, message.header_block, message.payload) for message in await everything(peer, stream)]


Name: TypeAlias = Callable[[str], str]
