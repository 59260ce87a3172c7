"""Spark's part of a backfill and of a restore: counted, and with an error of ours where it fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from nats_bridge.client.connection import Connection
from nats_bridge.observability.logs import configure_logs
from nats_bridge.settings import Log
from nats_bridge_spark.engine import run_here
from nats_bridge_spark.errors import JobFailedError, JobStoppedError, marking
from nats_bridge_spark.failures import failure
from nats_bridge_spark.source.loop_thread import LoopThread
from nats_transforms.source_record import SourceRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from nats_bridge_spark.backfill.history import History, TaskOfRows


_Result = TypeVar("_Result")
KEPT: Final = "what was copied stays: run the same command again"
"""What a person should know who stopped a backfill."""


def done(job: str, work: Callable[[], _Result]) -> _Result:
    """Run Spark's work; raise our error where it fails.

    Raises:
        BridgeError: what a task said, or that Spark gave the job up.
    """
    try:
        return work()
    except JobStoppedError:
        raise
    except Exception as error:
        said = failure(job, error)
        if isinstance(said, JobFailedError):
            raise JobFailedError(f"{said.message}; {KEPT}") from None
        raise said from None


REPORT = "report string"
"""What a task returns: one row with its counts, as JSON."""


def counts_of(work: Coroutine[Any, Any, dict[str, int]]) -> Iterator[pa.RecordBatch]:
    """Do a task's work; return its counts, with the columns `REPORT`.

    Raises:
        PipelineError: marked, for the driver to find.
    """
    configure_logs(Log(level="warning"))
    with marking():
        counts = asyncio.run(work)
    yield pa.record_batch({"report": [json.dumps(counts)]})


def counted(task: TaskOfRows, history: History, spark: SparkSession | None, loop: LoopThread) -> dict[str, int]:
    """The counts of a task that gets the rows of a history; none where there were no rows.

    Args:
        task: what to do.
        history: the rows.
        spark: the session; None for work in this process.
        loop: where that runs.
    """
    if spark is None:
        return run_here(loop, task.counts(history.rows()))
    rows = history.given_to(task, spark).collect()
    return dict(json.loads(rows[0][0])) if rows else {}


_PATIENCE: Final = 2.0
"""Seconds for one look; who watches does not wait for servers."""


@dataclass(slots=True)
class StoredPosition:
    """Reads a backfill's progress from the stream that stores its results; may be called from any thread.

    For watching only: a task that reads a history without Spark has no rows that Spark could count.

    Attributes:
        loop: where the connection lives.
        connection: the connection that holds the stream.
        stream: the stream that stores the results.
        record_of: from a result's header block to the record of the message it was made of; None for what another
            client stored.
        first: where the history begins.
        messages: how many of its sequences are done, at least.
    """

    loop: LoopThread
    connection: Connection
    stream: str
    record_of: Callable[[bytes], SourceRecord | None]
    first: int
    messages: int = 0

    def __call__(self) -> int:
        """How many sequences of the history are done.

        Raises:
            TimeoutError: the server is slow.
            BridgeError: it is away, or refuses.
        """
        block = self.loop.run(self._newest())
        record = self.record_of(block) if block else None
        if record is not None:
            self.messages = max(self.messages, record.sequence - self.first + 1)
        return self.messages

    async def _newest(self) -> bytes | None:
        async with asyncio.timeout(_PATIENCE):
            info = await self.connection.api.stream_info(self.stream)
            last = int(info["state"]["last_seq"])
            stored = await self.connection.api.stored_message(self.stream, last) if last else None
        return stored.header_block if stored else None
