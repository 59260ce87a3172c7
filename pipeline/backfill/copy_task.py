"""What a task does with its rows: it copies them into the target, as the sidecar does.

Theory of operation. A task is given rows in ascending sequence and begins as a start of the sidecar does: it asks the
target what it holds. Whatever went wrong before (a task that failed, an executor or a whole job that was killed), the
next attempt reads the same rows or more, and skips what is there. So no state is kept but what the target holds, and
the message ids only have to last for what was on its way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa

from nats_bridge.bridge.client.connection import Link
from nats_bridge.bridge.client.permission_violations import refused_publication
from nats_bridge.bridge.client.tasks import end_tasks
from nats_bridge.bridge.kinds.copying.counters import CopyCounters
from nats_bridge.bridge.kinds.copying.dead_letters import Rejections
from nats_bridge.bridge.kinds.copying.entry import CopyEntry
from nats_bridge.bridge.kinds.copying.entry_plan import EntryPlan
from nats_bridge.bridge.observability.rule_metrics import Measures
from nats_bridge.bridge.settings import Connection
from nats_bridge.pipeline.backfill.kept_rows import KeptRows
from nats_bridge.pipeline.backfill.row_reading import RowEntry
from nats_bridge.pipeline.backfill.rows import Batches
from nats_bridge.pipeline.backfill.task_counts import counts_of
from nats_bridge.pipeline.connections import connected
from nats_bridge.pipeline.errors import PipelineError, UnreachableError

__all__ = ["CopyTask"]

_LOOK = 0.25  # seconds between two looks at whether something is in the way


@dataclass(frozen=True, slots=True)
class CopyTask:
    """Copies rows into a stream; called by Spark with the rows of a partition.

    Attributes:
        plan: what the entry does.
        origin: the connection that holds the origin.
        target: the connection that holds the target.
        skip: where to publish what the target refuses; None to stop.
        client: the name of the task's connections in the servers' lists.
        created: when the origin was created.
        first: the sequence at which the rows begin.
        patience: seconds for which the target may be away or full before the task gives up.
    """

    plan: EntryPlan
    origin: Connection = field(repr=False)
    target: Connection = field(repr=False)
    skip: str | None
    client: str
    created: str
    first: int
    patience: float = 60.0

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Copy the rows.

        Raises:
            PipelineError: marked, for the driver to find.
        """
        return counts_of(self._copied(batches))

    async def _copied(self, batches: Batches) -> dict[str, int]:
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def fail(error: BaseException) -> None:
            if not failed.done():
                failed.set_exception(error)

        counters, rows = CopyCounters(), KeptRows(batches)
        async with AsyncExitStack() as open_links:
            target = await open_links.enter_async_context(connected(self.target, client_name=self.client, no_echo=True))
            origin = await open_links.enter_async_context(connected(self.origin, client_name=self.client))
            entry = RowEntry(
                rows,
                self.first,
                self.created,
                fail,
                plan=self.plan,
                origin=origin,
                target=target,
                rejections=Rejections(self.plan.rule, self.plan.stream, self.skip, target, counters),
                counters=counters,
                measures=Measures(),
                tracing=None,
            )
            target.on_end(lambda reason: fail(UnreachableError(f"the target's server ended the connection: {reason}")))
            target.on_refusal(lambda text: self._refused(text, fail))
            waiting: list[asyncio.Task[Any]] = [
                asyncio.create_task(self._without_obstacle(entry, target)),
                asyncio.create_task(entry.finished.wait()),
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
        return {**asdict(counters), "rows": rows.read, "last": rows.last}

    def _refused(self, text: str, fail: Callable[[BaseException], None]) -> None:
        """A violation of permissions; without the right to listen to others everything works, only slower."""
        if refused_publication(text):
            fail(
                PipelineError(
                    f"rule '{self.plan.rule}': the server refuses a publication ({text}): allow the user to publish to"
                    " the rule's destinations"
                )
            )

    async def _without_obstacle(self, entry: CopyEntry, target: Link) -> None:
        """Wait until something has been in the way for too long.

        Raises:
            UnreachableError: the server is away.
            PipelineError: the stream is.
        """
        loop = asyncio.get_running_loop()
        free = loop.time()
        while True:
            await asyncio.sleep(_LOOK)
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
