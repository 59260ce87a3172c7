"""A restore without Spark, as a process that can be killed: `python -m tests.spark.restoring_process URL STREAM LAST`.

The rows are computed, with missing sequences and ids that come again; what is published, and how, is the restore's.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from nats_bridge.client.stream_identity import KnownStream
from nats_bridge.settings import Connection
from nats_bridge_spark.backfill.history import COLUMNS
from nats_bridge_spark.columns import ARROW
from nats_bridge_spark.columns import COLUMNS as TYPES
from nats_bridge_spark.connections import connected
from nats_bridge_spark.restore.configuration import RestoreMark
from nats_bridge_spark.restore.task import StreamRestore
from tests.spark.histories import Stored, block

MARK = RestoreMark("ORDERS", "2026-01-01T00:00:00Z")
SUBJECT = "orders"


def rows(last: int) -> Iterator[Stored]:
    """The captured messages: each thirteenth is missing, some have ids, of which each thousandth or so comes again."""
    for number in range(1, last + 1):
        if number % 13:
            message_id = 0 if number % 999 == 0 else number
            lines = [b"Nats-Msg-Id: %d" % message_id] if number % 9 == 0 else [b"A: %d" % number]
            yield Stored(number, f"{SUBJECT}.{number % 7}", block(*lines) if number % 3 == 0 else b"", b"%d" % number)


@dataclass(frozen=True, slots=True)
class StoredHistory:
    """Messages as a `MessageHistory`."""

    stored: list[Stored]
    last: int

    async def rows(self, first: int) -> AsyncGenerator[pa.RecordBatch, None]:
        wanted = [each for each in self.stored if first <= each.sequence <= self.last]
        for start in range(0, len(wanted), 1500):
            some = wanted[start : start + 1500]
            columns: list[list[Any]] = [
                [each.subject for each in some],
                [each.sequence for each in some],
                [each.sequence for each in some],
                [each.block for each in some],
                [each.data for each in some],
            ]
            arrays = [pa.array(c, ARROW[TYPES[name]]) for c, name in zip(columns, COLUMNS, strict=True)]
            yield pa.record_batch(arrays, names=COLUMNS)


def config_of(stream: str) -> dict[str, Any]:
    """What the restored stream ends with; its subjects are its own, for tests share servers."""
    return {"name": stream, "subjects": [f"{stream}.>"]}


async def restored(url: str, stream: str, created: str, stored: list[Stored], last: int, **more: Any) -> dict[str, int]:
    """Restore messages up to a sequence; the counts."""
    history: Any = StoredHistory(stored, last)
    options = {"config": config_of(stream), "mark": MARK, "sourcing": None, **more}
    async with connected(Connection(servers=(url,))) as connection:
        work = StreamRestore(connection, history=history, known=KnownStream(created), **options)
        await work.run()
    return work.counts


async def main(url: str, stream: str, last: int) -> None:
    """Restore what is missing."""
    async with connected(Connection(servers=(url,))) as opened:
        info = await opened.api.stream_info(stream)
    await restored(url, stream, info["created"], list(rows(last)), last)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
