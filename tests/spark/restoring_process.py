"""A restore without Spark, as a process that can be killed: `python -m tests.spark.restoring_process URL STREAM LAST`.

The rows are computed, with missing sequences and ids that come again; what is published, and how, is the restore's.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from nats_bridge.client.stream_identity import KnownStream
from nats_bridge.settings import Connection
from nats_bridge_spark.backfill.rows import SCHEMA
from nats_bridge_spark.connections import connected
from nats_bridge_spark.restore.configuration import RestoreMark
from nats_bridge_spark.restore.task import CHECKED, RestoreTask
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


def batches_of(stored: list[Stored], size: int = 1000) -> Iterator[pa.RecordBatch]:
    """As Spark gives them to a task."""
    for start in range(0, len(stored), size):
        some = stored[start : start + size]
        columns: list[list[Any]] = [
            [each.subject for each in some],
            [each.sequence for each in some],
            [each.sequence for each in some],
            [each.block for each in some],
            [each.data for each in some],
        ]
        yield pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def config_of(stream: str) -> dict[str, Any]:
    """What the restored stream ends with; its subjects are its own, for tests share servers."""
    return {"name": stream, "subjects": [f"{stream}.>"]}


def task_of(url: str, stream: str, created: str, last: int, **more: Any) -> RestoreTask:
    """The task that restores the rows."""
    connection = Connection(servers=(url,))
    options = {"config": config_of(stream), "mark": MARK, "sourcing": None, **more}
    return RestoreTask(connection=connection, known=KnownStream(created), last=last, **options)


async def _info(url: str, stream: str) -> Any:
    async with connected(Connection(servers=(url,))) as opened:
        return await opened.api.stream_info(stream)


def main(url: str, stream: str, last: int) -> None:
    """Restore what is missing, as the driver plans it."""
    info = asyncio.run(_info(url, stream))
    first = info["state"]["last_seq"] - CHECKED + 1
    stored = [each for each in rows(last) if each.sequence >= first]
    list(task_of(url, stream, info["created"], last)(batches_of(stored)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
