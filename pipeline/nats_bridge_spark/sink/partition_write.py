"""One task's rows, written into the stream without those that an earlier attempt has stored.

Spark repeats a failed task, and numbers the attempt. The stream may still store messages that the failed one had in
flight, so the next attempt waits for them. Spark gives no sign when a whole stage is repeated (shuffle files were lost)
or a query is restarted. So a first attempt also reads the messages stored since the write was planned.

A micro-batch has no such plan. Its task reads the stream backwards, up to a message of an earlier batch. A worker
process that has written an earlier batch only reads the messages stored since then.
"""

import contextlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from nats_bridge.client.jetstream_api import Json
from nats_bridge.consuming.replay import Replay
from nats_bridge.kinds.copying.target import Target
from nats_bridge_spark.connections import connected_by_options
from nats_bridge_spark.errors import OptionError
from nats_bridge_spark.row_bundle import pieces
from nats_bridge_spark.sink.bundling import BundleBuilder
from nats_bridge_spark.sink.plan import WritePlan
from nats_bridge_spark.sink.rounds import Rounds
from nats_bridge_spark.sink.stored_rows import RowSearch, StoredRows, TaskPlace

_MOST_KNOWN: Final = 64
_written: Final = dict[tuple[str, str], tuple[int, int]]()
"""The newest batch that this process has written and the stream's sequence then, by query and the stream's creation."""


@dataclass(frozen=True)
class WrittenPartition(WriterCommitMessage):
    """The result of a task, as it is reported to the driver.

    Attributes:
        already: the rows that the stream already had, from an earlier attempt or under their own ids.
        interruptions: the number of times that it had to read which rows were stored.
    """

    rows: int = 0
    already: int = 0
    interruptions: int = 0


class PartitionWrite:
    """Writes the rows of one task."""

    def __init__(self, plan: WritePlan, task: TaskPlace) -> None:
        self._plan = plan
        self._task = task
        self._rows = 0
        self._begun: tuple[Rounds, BundleBuilder] | None = None
        self._stack = contextlib.AsyncExitStack()

    async def add(self, batch: pa.RecordBatch) -> None:
        """Write a batch of rows. Returns when it is in flight.

        Raises the errors of `BundleBuilder.build` and `Rounds.settled`.
        """
        if not batch.num_rows:
            return
        rounds, builder = self._begun = self._begun or await self._begin(batch)
        for piece in pieces(batch):
            await rounds.send(builder.build(piece, self._rows))
            self._rows += piece.num_rows

    async def finish(self) -> WrittenPartition:
        """Return the result, once all rows are known to be stored. Raises the errors of `add`."""
        if self._begun is None:
            return WrittenPartition()
        rounds, builder = self._begun
        await rounds.settled()
        if self._plan.streaming:
            _written.pop(self._key, None)
            _written[self._key] = self._task.batch, rounds.last
            if len(_written) > _MOST_KNOWN:
                del _written[next(iter(_written))]
        return WrittenPartition(self._rows, rounds.counters.duplicates + builder.already, rounds.interruptions)

    async def close(self) -> None:
        """Close the connection. Unconfirmed messages stay unknown."""
        await self._stack.aclose()

    async def _begin(self, batch: pa.RecordBatch) -> tuple[Rounds, BundleBuilder]:
        plan, options = self._plan, self._plan.options
        if self._task.partition:
            # Spark does not tell a task how many there are, so the first one may have stored rows by now.
            again = "start the query again" if plan.streaming else f'say .option("writeId", "{plan.name}")'
            raise OptionError(
                f"a write is one task's, and partition {self._task.partition} has rows, too. What partition 0 has"
                f" stored stays: put .coalesce(1) before the write and {again}, and the rest is stored in order,"
                " nothing twice"
            )
        connection = self._connection = await self._stack.enter_async_context(
            connected_by_options(
                options.connection, client_name=f"nats-bridge-spark-write {options.stream}", no_echo=True
            )
        )
        rounds = Rounds(plan, self._task, connection)
        self._stack.push_async_callback(rounds.close)
        info = await rounds.info()
        self._key = self._task.write, str(info["created"])
        target = Target.of(info, connection.server_version)
        builder = BundleBuilder(
            plan.layout,
            self._task,
            target,
            max_payload=connection.client.max_payload,
            check_subjects=options.check_subjects,
        )
        first = builder.build(batch.slice(0, 1), 0)
        last = await rounds.open(first.subjects[0].as_py(), info)
        # Of a failed attempt, even everything may be in flight.
        begin = await rounds.patiently(self._first, info)
        if self._task.attempt or last >= begin:
            builder.stored = await rounds.patiently(self._stored, info, begin, last)
        return rounds, builder

    async def _stored(self, info: Json, first: int, last: int) -> StoredRows:
        """Return the task's rows in the target, after waiting for everything that an earlier attempt had in flight."""
        plan = self._plan
        search = RowSearch(self._connection.api, info, plan, self._task)
        found = await search.rows(first, last)
        if self._task.attempt or found.found or (found.ids and (plan.streaming or plan.options.write_id)):
            await search.settle(found, last)
        return found

    async def _first(self, info: Json) -> int:
        """Return the first sequence at which an earlier attempt can have stored a row."""
        first = max(int(info["state"]["first_seq"]), 1)
        batch, sequence = _written.get(self._key, (self._task.batch, 0))
        if self._plan.streaming and batch < self._task.batch:
            return max(sequence + 1, first)
        if self._plan.after is not None:
            return max(self._plan.after + 1, first)
        if self._plan.options.look_back is None:
            return first
        since = datetime.now(UTC) - timedelta(seconds=self._plan.options.look_back)
        return max(await Replay(self._connection.api, self._plan.options.stream).before(since.isoformat()) + 1, first)
