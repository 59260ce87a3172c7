"""One task's rows, written into the stream without those that an earlier attempt has stored."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import WriterCommitMessage

from nats_bridge.client.pub_ack import PubAck
from nats_bridge.kinds.copying.counters import CopyCounters
from nats_bridge.kinds.copying.target import Operation, Target
from nats_bridge.kinds.copying.writing.in_flight import LEAST, Window
from nats_bridge_spark.connections import connected_by_options
from nats_bridge_spark.errors import OptionError, RowError
from nats_bridge_spark.rounds import Rounds, Standing
from nats_bridge_spark.row_bundle import RowBundle, first_with, rows_together
from nats_bridge_spark.sink.bundling import BundleBuilder
from nats_bridge_spark.sink.earlier_attempts import EarlierAttempts
from nats_bridge_spark.sink.plan import TaskPlace, WritePlan
from nats_bridge_spark.sink.stored_rows import RowId, RowPlace, RowSearch, StoredRows, write_key
from nats_transforms import header_block
from nats_transforms.dialect import server_dialect

_PIECE: Final = 4096  # rows that become messages together
_MOST_IN_ORDER: Final = 4 * LEAST  # messages in flight of the only task
_LONG_WINDOW: Final = 60 * 10**9  # nanoseconds
_DOUBTED: Final = 1024  # messages that a publisher may ask for again after it has reported that they are stored


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
        self._stream = plan.options.stream
        self._place = RowPlace(write_key(task.query if plan.streaming else plan.write_id), task.batch, task.partition)
        self._counters = CopyCounters()
        self._rows = 0
        self._saw_ids = False
        self._most_unconfirmed = LEAST
        self._stored = StoredRows()  # rows that were in flight when the present round began
        self._reconnects = 0  # of the connection, by then
        self._builder: BundleBuilder | None = None
        self._rounds: Rounds | None = None
        self._stack = contextlib.AsyncExitStack()

    @property
    def waits(self) -> bool:
        """Whether the stream stores nothing at the moment, so the task waits for room in it."""
        return self._rounds is not None and self._rounds.waits

    async def add(self, batch: pa.RecordBatch) -> None:
        """Write a batch of rows. Returns when it is in flight.

        Raises:
            RowError: a row cannot be written, or the stream refuses it.
            UnreachableError: no server, for longer than the patience allows.
            PipelineError: the stream is missing, full for too long, or another one.
        """
        if not batch.num_rows:
            return
        start = 0
        if self._builder is None or self._rounds is None:
            self._rounds, self._builder, start = await self._begin(batch)
        step = _rows_at_once(batch, self._most_unconfirmed)
        for at in range(start, batch.num_rows, step):
            bundle = self._built(self._rounds, self._builder, batch.slice(at, step), self._rows + at)
            await self._rounds.send(bundle)
        self._rows += batch.num_rows

    async def finish(self) -> WrittenPartition:
        """Wait until all rows are known to be stored.

        Returns:
            The result of the write. Raises the errors of `add`.
        """
        if self._builder is None or self._rounds is None:
            return WrittenPartition()
        await self._rounds.settled()
        self._earlier.remember()
        already = self._counters.duplicates + self._builder.already
        return WrittenPartition(self._rows, already, self._rounds.interruptions)

    async def close(self) -> None:
        """Close the connection. Unconfirmed messages stay unknown."""
        await self._stack.aclose()

    # -- beginning ---------------------------------------------------------------------------------------------------

    def _refuse_second_partition(self) -> None:
        plan = self._plan
        if plan.options.ordered and self._task.partition:
            # Spark does not tell a task how many there are, so the first one may have stored rows by now.
            again = "start the query again" if plan.streaming else f'say .option("writeId", "{plan.name}")'
            raise OptionError(
                f"an ordered write is one task's, and partition {self._task.partition} has rows, too. What partition 0"
                f" has stored stays: put .coalesce(1) before the write and {again}, and the rest is stored in order,"
                ' nothing twice; or .option("ordered", "false"): partitions at the same time, unordered'
            )

    async def _begin(self, batch: pa.RecordBatch) -> tuple[Rounds, BundleBuilder, int]:
        """Return the open rounds and builder, and the number of rows of the batch that are already sent."""
        self._refuse_second_partition()
        options = self._plan.options
        name = f"nats-bridge-spark-write {self._stream}"
        connection = self._connection = await self._stack.enter_async_context(
            connected_by_options(options.connection, client_name=name, no_echo=True)
        )
        rounds: Rounds = Rounds(
            self._stream,
            connection,
            self,
            self._counters,
            patience=options.patience,
            known=self._plan.known,
            exclusive=options.ordered,
            doubted=_DOUBTED,
            window_of=self._window_of,
        )
        self._stack.push_async_callback(rounds.close)
        info = await rounds.info()
        builder = BundleBuilder(
            self._plan.layout,
            self._place,
            Target.of(info, connection.server_version),
            max_payload=connection.client.max_payload,
            check_subjects=options.check_subjects,
        )
        first = self._built(rounds, builder, batch.slice(0, 1), 0)
        last = (await rounds.open(first.subjects[0].as_py(), info)).last
        self._earlier = EarlierAttempts(self._plan, self._task, self._place, connection)
        look = await rounds.patiently(self._earlier.look, info, last)
        if look == "nothing":
            return rounds, builder, 0
        if look == "ask":
            await rounds.send(first)
            await rounds.settled()
            if not self._counters.duplicates and not rounds.interruptions:
                return rounds, builder, 1
            self._counters.duplicates = 0
        builder.stored = await rounds.patiently(self._earlier.stored, info, last)
        return rounds, builder, 0

    def _built(self, rounds: Rounds, builder: BundleBuilder, batch: pa.RecordBatch, first: int) -> RowBundle:
        bundle = builder.build(batch, first)
        if builder.saw_ids and not self._saw_ids:
            self._saw_ids = True  # from now on the stream reports duplicates
            rounds.request_each()
        return bundle

    def _window_of(self, target: Target) -> Window:
        # With more in flight, the server waits for the task less often. But many tasks together could queue too much,
        # and a repeated request must be processed while the ids of the first one are remembered.
        server = server_dialect(self._connection.server_version)
        few = not self._plan.options.ordered or server.stream_queue_is_short
        self._most_unconfirmed = LEAST if few or target.window_ns < _LONG_WINDOW else _MOST_IN_ORDER
        return Window(self._most_unconfirmed, least=self._most_unconfirmed)

    # -- calls by `Rounds` -------------------------------------------------------------------------------------------

    async def look(self, standing: Standing, in_flight: Sequence[RowBundle]) -> None:
        """Find out which rows in flight the stream has (see `Sender`)."""
        if self._plan.options.check_subjects:
            self._check_subjects(standing.target, in_flight)
        reconnects = self._connection.reconnects
        if in_flight:
            ids = self._plan.layout.brings_ids
            search = RowSearch(self._connection.api, standing.info, self._place, ids=ids)
            self._stored = await search.between(standing.behind + 1, standing.last)
            # Messages that the previous connection has in flight may arrive after this connection's request.
            if reconnects > self._reconnects and standing.target.window_ns < _LONG_WINDOW:
                await search.settle(self._stored, standing.last, self._plan.options.patience)
        self._reconnects = reconnects

    def left(self, messages: RowBundle) -> RowBundle:
        """Return the rows that are not stored."""
        blocks = messages.blocks.to_pylist()
        return messages.kept([at for at, block in enumerate(blocks) if not _is_stored(block, self._stored)])

    async def refused(self, operation: Operation, pub_ack: PubAck) -> None:
        """A row that the stream refuses ends the task."""
        raise self._wrong(operation, f"stream '{self._stream}' refuses it: {pub_ack.description} ({pub_ack.err_code})")

    def _check_subjects(self, target: Target, in_flight: Sequence[RowBundle]) -> None:
        for bundle in in_flight:
            for subject in pc.unique(bundle.subjects).to_pylist():
                if not target.takes(subject):
                    at = first_with(subject, bundle.subjects)
                    (operation,) = bundle.operations(at, at + 1)
                    raise self._wrong(operation, f"stream '{self._stream}' does not store this subject any more")

    def _wrong(self, operation: Operation, why: str) -> RowError:
        return RowError(
            f"row {int(operation[0]) - 1} of partition {self._task.partition}"
            f" (subject '{_subject(operation).decode('utf-8', 'replace')}'): {why}"
        )


def _rows_at_once(batch: pa.RecordBatch, most_unconfirmed: int) -> int:
    return rows_together(batch, min(_PIECE, most_unconfirmed // 8))


def _subject(operation: Operation) -> bytes:
    data = operation[1]
    return data[5 : data.index(b" ", 5)]


def _is_stored(block: bytes, stored: StoredRows) -> bool:
    message_id = header_block.read(block, b"Nats-Msg-Id")
    known = RowId.parse(message_id)
    if known is None:
        return message_id in stored.ids
    return stored.check_of(known.row) == known.check or stored.was_removed(known.row)
