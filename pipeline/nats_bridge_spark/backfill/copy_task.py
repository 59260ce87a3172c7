"""Copies a task's rows into the target, as the sidecar does.

Theory of operation. A task is given rows in ascending sequence and begins as a start of the sidecar does: it asks the
target what it holds. Whatever went wrong before (a task that failed, an executor or a whole job that was killed), the
next attempt reads the same rows or more, and skips what is stored. So no state is kept but what the target holds, and
the message ids only have to last for what was in flight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa

from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import Json
from nats_bridge.client.permission_violations import refused_publication
from nats_bridge.client.stream_identity import Bounds, KnownStream
from nats_bridge.client.tasks import end_tasks
from nats_bridge.client.waiting import FOUR_A_SECOND
from nats_bridge.consuming.lag import StreamPosition
from nats_bridge.errors import RuleRefusedError
from nats_bridge.kinds.copying.counters import CopyCounters
from nats_bridge.kinds.copying.entry import CopyEntry
from nats_bridge.kinds.copying.entry_plan import EntryPlan
from nats_bridge.kinds.copying.reading.source import Reading
from nats_bridge.kinds.copying.round import EntryContext, Round
from nats_bridge.observability.rule_metrics import RuleMetrics
from nats_bridge.settings import Connection as ConnectionSettings
from nats_bridge_spark.backfill.column_copies import copies_of
from nats_bridge_spark.backfill.rows import Batches, KeptRows, Piece
from nats_bridge_spark.backfill.spark_work import counts_of
from nats_bridge_spark.connections import connected
from nats_bridge_spark.errors import DataLostError, PipelineError, UnreachableError


@dataclass(frozen=True, slots=True)
class CopyTask:
    """Copies rows into a stream; called by Spark with the rows of a partition.

    Attributes:
        plan: what the entry does.
        source_connection: the connection that holds the source.
        target: the connection that holds the target.
        client: the name of the task's connections in the servers' lists.
        known: by what the source is recognised.
        first: the sequence at which the rows begin.
        patience: seconds for which the target may be away or full before the task gives up.
    """

    plan: EntryPlan
    source_connection: ConnectionSettings = field(repr=False)
    target: ConnectionSettings = field(repr=False)
    client: str
    known: KnownStream
    first: int
    patience: float = 60.0

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Copy the rows.

        Raises:
            PipelineError: marked, for the driver to find.
        """
        return counts_of(self.counts(batches))

    def check(self, handled: int, info: Json, forgotten: int) -> None:
        """Check that the target lacks these rows.

        Args:
            handled: the source's sequence up to which the target holds everything.
            info: the source's `STREAM.INFO` now.
            forgotten: the last row's sequence that was confirmed, and is not kept any more; 0 for none.

        Raises:
            RuleRefusedError: the source is another one by now.
            DataLostError: the target lost messages since the job was planned, or since it has confirmed them.
        """
        plan = self.plan
        if self.known.differs(str(info["created"]), Bounds.of(info)):
            raise RuleRefusedError(
                f"rule '{plan.rule}': stream '{plan.source.name}' was recreated while its history was copied: run the"
                " backfill again"
            )
        held = max(self.first - 1, forgotten)
        if handled < held:
            raise DataLostError(
                f"rule '{plan.rule}': stream '{plan.stream}' holds what comes from '{plan.source.name}' up to sequence"
                f" {handled}, and has held it up to {held} since the job was planned: run the backfill again"
            )

    async def counts(self, batches: Batches) -> dict[str, int]:
        """Copy the rows; what was done with how many."""
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def fail(error: BaseException) -> None:
            if not failed.done():
                failed.set_exception(error)

        counters = CopyCounters()
        rows = _Rows(self, batches, counters, fail)
        async with AsyncExitStack() as open_connections:
            target = await open_connections.enter_async_context(
                connected(self.target, client_name=self.client, no_echo=True)
            )
            source_connection = await open_connections.enter_async_context(
                connected(self.source_connection, client_name=self.client)
            )
            context = EntryContext(self.plan, source_connection, target, counters, RuleMetrics(), reader=rows.reader)
            entry = CopyEntry(context, fail)
            target.on_end(lambda reason: fail(UnreachableError(f"the target's server ended the connection: {reason}")))
            target.on_refusal(lambda text: self._refused(text, fail))
            waiting: list[asyncio.Task[Any]] = [
                asyncio.create_task(self._without_obstacle(entry, target)),
                asyncio.create_task(rows.finished.wait()),
            ]
            try:
                await entry.start()
                await asyncio.wait([failed, *waiting], return_when=asyncio.FIRST_COMPLETED)
                for future in (failed, waiting[0]):
                    if future.done():
                        future.result()
                await entry.stop()
            finally:
                await end_tasks(*waiting)
                if failed.done():
                    failed.exception()
                await entry.abandon()
        return {**asdict(counters), "rows": rows.kept.read, "last": rows.kept.last}

    def _refused(self, text: str, fail: Callable[[BaseException], None]) -> None:
        """A violation of permissions; without the right to listen to others everything works, only slower."""
        if refused_publication(text):
            fail(
                PipelineError(
                    f"rule '{self.plan.rule}': the server refuses a publication ({text}): allow the user to publish to"
                    " the rule's destinations"
                )
            )

    async def _without_obstacle(self, entry: CopyEntry, target: Connection) -> None:
        """Wait until an obstacle has lasted too long.

        Raises:
            UnreachableError: the server is away.
            PipelineError: the stream is.
        """
        loop = asyncio.get_running_loop()
        free = loop.time()
        while True:
            await asyncio.sleep(FOUR_A_SECOND)
            obstacle = entry.obstacle
            if target.client.is_connected and obstacle is None:
                free = loop.time()
            elif loop.time() - free > self.patience:
                place = f"rule '{self.plan.rule}': stream '{self.plan.stream}'"
                if not target.client.is_connected:
                    raise UnreachableError(
                        f"{place}: its server is away for {self.patience:g} s: run the backfill again"
                    )
                raise PipelineError(f"{place}: waited {self.patience:g} s for {obstacle}: run the backfill again then")


class _Rows:
    """The rows that a task hands to its entry, round after round.

    Args:
        task: what is done.
        batches: the rows.
        counters: where to count.
        fail: called with the error that ends it.

    Attributes:
        task, counters, fail: the same.
        kept: the rows that are not stored.
        finished: set when every row is stored, or skipped.
    """

    def __init__(
        self, task: CopyTask, batches: Batches, counters: CopyCounters, fail: Callable[[BaseException], None]
    ) -> None:
        self.task = task
        self.kept = KeptRows(batches)
        self.counters = counters
        self.fail = fail
        self.finished = asyncio.Event()

    def reader(self, sink: Round, filters: tuple[str, ...]) -> Reading:
        """The reader of a round."""
        return _RowReading(self, sink, filters)


class _RowReading:
    """Hands rows to an entry, for one round (see `Reading`)."""

    attached = True
    waits_for = ""

    def __init__(self, rows: _Rows, sink: Round, filters: tuple[str, ...]) -> None:
        self.handled = 0
        self._rows = rows
        self._round = sink
        self._filters = filters
        self._known = KnownStream("")
        self._feeding: asyncio.Task[None] | None = None

    @property
    def has_work(self) -> bool:
        """Whether rows are left."""
        return self._feeding is not None and not self._feeding.done()

    @property
    def stream_position(self) -> StreamPosition:
        """Where it stands."""
        return StreamPosition(self._rows.task.plan.source.name, self._known, self._filters, self.handled)

    async def open(self, handled: int, info: dict[str, Any]) -> None:
        """Begin after a sequence."""
        self._known = KnownStream.of(info)
        self._rows.task.check(handled, info, self._rows.kept.forgotten)
        self.handled = handled
        self._feeding = asyncio.create_task(self._feed())

    async def not_taken(self) -> int | None:
        """Unknown."""
        return None

    async def abandon(self, *, held: bool) -> None:
        """Stop; rows that are not stored are kept for the next round, whether they were `held` or not."""
        await end_tasks(self._feeding)

    async def end_at_once(self) -> None:
        """Stop."""
        await end_tasks(self._feeding)

    async def _feed(self) -> None:
        rows, publisher = self._rows, self._round.publisher
        try:
            async for piece in rows.kept.behind(self.handled):
                if waiting := self._accepted(piece):
                    await waiting
                if publisher.over:
                    return  # the next round begins, or an error ended it all
                rows.kept.stored(publisher.confirmed[0])
            await publisher.settled()
            if not publisher.over:
                rows.finished.set()
        except Exception as error:
            rows.fail(error)

    def _accepted(self, piece: Piece) -> Awaitable[None] | None:
        """Copy rows: in columns, if nothing asks for more care.

        Columns are not measured, nor traced: neither is read in a task.
        """
        sink, counters = self._round, self._rows.counters
        if sink.publisher.over:
            return None
        copies = None if sink.plan.keep_sequence else copies_of(piece, sink.encoder)
        if copies is None:
            return sink.accept(piece.messages())
        counters.received += len(piece)
        counters.unselected += len(piece) - len(copies)
        if copies:
            sink.publisher.expect(b"%d" % copies.names[-1], 0)
        return sink.publisher.send(copies)
