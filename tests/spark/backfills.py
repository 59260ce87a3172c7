"""Backfills in tests: a source, and targets of the same name on servers of their own, so that copies can be equal."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from nats_bridge.settings import Connection, Settings
from nats_bridge_spark.backfill.job import BackfillRequest, EntrySummary, backfill
from nats_bridge_spark.capture import parquet_files
from nats_bridge_spark.capture.capturing import CaptureRequest, capture
from nats_bridge_spark.capture.folder import SAVED
from nats_bridge_spark.progress import Progress
from tests.live.copied_messages import everything
from tests.live.raw_messages import RawPeer

Raw: TypeAlias = tuple[bytes, bytes, bytes]


async def backfilled(settings: Settings, rule: str = "rule", **wanted: Any) -> list[EntrySummary]:
    """Run a backfill; what it says."""
    return await asyncio.to_thread(backfill, settings, BackfillRequest(rule, **wanted))


async def held(peer: RawPeer, stream: str) -> list[Raw]:
    """Subjects, header blocks and payloads of a stream, to the byte, in stored order."""
    return [(message.subject, message.header_block, message.payload) for message in await everything(peer, stream)]


async def captured(url: str, stream: str, folder: Path, *, first: int | None = None, created: str = "") -> None:
    """Make a capture of a stream, in small chunks; one that says it is of a stream that was created at another time."""
    wanted = CaptureRequest(Connection(servers=(url,)), stream, str(folder), begin=first)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(parquet_files, "MESSAGES", 20)
        await asyncio.to_thread(capture, None, wanted, Progress("capture"))
    if created:
        saved = json.loads((folder / SAVED).read_text())
        saved["extent"] |= {"created": created, "seen": []}
        (folder / SAVED).write_text(json.dumps(saved))
