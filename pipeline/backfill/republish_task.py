"""What a task does with its rows: it republishes them, as the sidecar does, into the stream that stores the results.

Every publication is confirmed by that stream. Republished messages have no ids of ours, so where the task goes on after
a failure is read from the stream alone: `Nats-Stream` and `Nats-Sequence` say what is there.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field, replace

import pyarrow as pa
import structlog

from bridge.cancelling import end_tasks
from bridge.connection import Link
from bridge.copying.barrier import last_sequence_behind
from bridge.copying.copy_loop import Operation
from bridge.copying.counters import CopyCounters
from bridge.copying.position import Resume
from bridge.copying.publisher import MOST_UNCONFIRMED, Publisher
from bridge.copying.resuming import compared
from bridge.copying.target import Target
from bridge.copying.target_tail import read_tail
from bridge.copying.verdict import Verdict
from bridge.logs import configure_logs
from bridge.measures import Measures
from bridge.settings import Connection, Log
from bridge.wire import Delivered
from pipeline.backfill.kept_rows import KeptRows
from pipeline.backfill.republish_outcomes import RepublishOutcomes
from pipeline.backfill.rows import sequence_of
from pipeline.connections import connected
from pipeline.errors import DataLostError, PipelineError, UnreachableError, marking
from transforms.republish import Republish
from transforms.source_record import SourceRecord

__all__ = ["RepublishTask", "republished_position"]

_log = structlog.get_logger("pipeline.backfill")

_LOOK = 0.25  # seconds between two looks at whether something is in the way


@dataclass(frozen=True, slots=True)
class RepublishTask:
    """Republishes rows; called by Spark with the rows of the whole history, in order.

    Attributes:
        rule: the rule's name.
        outcomes: what makes the messages.
        republish: the compiled rule.
        stream: the stream whose history it is.
        filters: what to read that stream with, to see what is missing.
        captured_by: the stream that stores the results.
        probe: a subject that it stores.
        origin: the connection that holds the history's stream.
        target: the connection that is published to.
        created_ns: when the history's stream was created, nanoseconds since 1970.
        last: the last sequence wanted; what the results' stream holds of later ones is the live rule's.
        client: how the servers shall list the task's connections.
        patience: seconds for which the target may be away or full before the task gives up.
    """

    rule: str
    outcomes: RepublishOutcomes
    republish: Republish
    stream: str
    filters: tuple[str, ...]
    captured_by: str
    probe: bytes
    origin: Connection = field(repr=False)
    target: Connection = field(repr=False)
    created_ns: int
    last: int
    client: str
    patience: float = 60.0

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Republish the rows.

        Raises:
            PipelineError: marked, for the driver to find.
        """
        configure_logs(Log(level="warning"))
        with marking():
            counts = asyncio.run(self._republished(batches))
        yield pa.record_batch({"told": [json.dumps(counts)]})

    async def _republished(self, batches: Iterator[pa.RecordBatch]) -> dict[str, int]:
        async with AsyncExitStack() as open_links:
            target = await open_links.enter_async_context(connected(self.target, client_name=self.client))
            origin = await open_links.enter_async_context(connected(self.origin, client_name=self.client))
            work = _Work(self, target, origin, KeptRows(batches))
            working = asyncio.create_task(work.run())
            watching = asyncio.create_task(work.without_obstacle())
            try:
                await asyncio.wait([working, watching], return_when=asyncio.FIRST_COMPLETED)
                for task in (working, watching):
                    if task.done():
                        task.result()
            finally:
                await end_tasks(working, watching)
        return work.counts


class _Work:
    """A task at work, round after round."""

    def __init__(self, task: RepublishTask, target: Link, origin: Link, rows: KeptRows) -> None:
        self._task = task
        self._target = target
        self._origin = origin
        self._rows = rows
        self._counters = CopyCounters()
        self._kept: deque[Operation] = deque()  # made, and not known to be stored
        self._position: Resume | None = None
        self._confirmed = 0
        self._error: BaseException | None = None
        self._publisher: Publisher | None = None
        self._unselected = 0

    @property
    def counts(self) -> dict[str, int]:
        """What was counted."""
        told = asdict(self._counters) | {"unselected": self._unselected}
        return {**told, "rows": self._rows.read, "last": self._rows.last}

    async def run(self) -> None:
        """Republish everything."""
        pieces = aiter(self._rows.behind(0))
        while True:
            await self._target.connected()
            publisher, there = await self._begin()
            try:
                if await self._publish(publisher, there, pieces):
                    return
            finally:
                self._confirmed = max(self._confirmed, publisher.confirmed[0])
                self._publisher = None
                await publisher.close()
            if self._error is not None:
                raise self._error

    async def _begin(self) -> tuple[Publisher, frozenset[int]]:
        task = self._task
        info = await self._target.api.stream_info(task.captured_by)
        target = Target.of(info, self._target.server_version)
        publisher = Publisher(
            self._target,
            target,
            self._counters,
            Measures(),
            self._refused,
            lambda reason: _log.warning("backfill.interrupted", rule=task.rule, reason=reason),
            self._fail,
            rule=task.rule,
        )
        await publisher.open()
        last = await last_sequence_behind(self._target, task.captured_by, task.probe)
        publisher.begin(last)
        self._publisher = publisher
        found = await republished_position(task, self._origin, self._target, target, last, self._confirmed)
        if self._position is None:
            self._position = found
            if found.handled < task.outcomes.first - 1:
                raise DataLostError(
                    f"rule '{task.rule}': stream '{task.captured_by}' lost messages since the job began:"
                    " run the backfill again"
                )
        return publisher, found.there

    async def _publish(
        self, publisher: Publisher, there: frozenset[int], pieces: AsyncIterator[list[Delivered]]
    ) -> bool:
        """Whether everything is stored; else another round is needed."""
        kept = self._kept
        while kept and int(kept[0][0]) <= self._confirmed:
            kept.popleft()
        left = [operation for operation in kept if int(operation[0]) not in there]
        self._counters.already_there += len(kept) - len(left)
        self._kept = deque(left)
        await self._send(publisher, left)
        while not publisher.over:
            try:
                batch = await anext(pieces)
            except StopAsyncIteration:
                await publisher.settled()
                return not publisher.over
            made = self._made(batch)
            self._kept.extend(made)
            self._rows.stored(self._rows.last)
            await self._send(publisher, made)
        return False

    async def _send(self, publisher: Publisher, operations: list[Operation]) -> None:
        if operations and (waiting := publisher.send(operations)):
            await waiting
        stored = publisher.confirmed[0]
        while self._kept and int(self._kept[0][0]) <= stored:
            self._kept.popleft()

    def _made(self, batch: list[Delivered]) -> list[Operation]:
        outcomes, position = self._task.outcomes, self._position
        assert position is not None
        made: list[Operation] = []
        for message in batch:
            sequence = sequence_of(message)
            number = int(sequence)
            if number <= position.handled or number in position.there:
                outcomes.seen(message)
                self._counters.already_there += number in position.there
                continue
            operation, reason = outcomes.operation_of(message)
            if operation is not None:
                made.append((sequence, operation))
            elif reason == "unmatched":
                self._unselected += 1
            else:
                self._counters.rejected += 1
        return made

    async def _refused(self, operation: Operation, verdict: Verdict) -> None:
        """The stream does not take a message: it would not have taken it from the sidecar, or a server, either."""
        self._counters.rejected += 1
        _log.warning(
            "backfill.refused", rule=self._task.rule, sequence=int(operation[0]), server_says=verdict.description
        )

    def _fail(self, error: BaseException) -> None:
        self._error = error

    async def without_obstacle(self) -> None:
        """Wait until something has been in the way for too long.

        Raises:
            UnreachableError: the server is away.
            PipelineError: the stream is full.
        """
        loop, task = asyncio.get_running_loop(), self._task
        free = loop.time()
        while True:
            await asyncio.sleep(_LOOK)
            waits = self._publisher is not None and self._publisher.waiting
            if self._target.client.is_connected and not waits:
                free = loop.time()
            elif loop.time() - free > task.patience:
                place = f"rule '{task.rule}': stream '{task.captured_by}'"
                if not self._target.client.is_connected:
                    raise UnreachableError(
                        f"{place}: its server is away for {task.patience:g} s: run the backfill again"
                    )
                raise PipelineError(
                    f"{place}: takes nothing for {task.patience:g} s: make room, and run the backfill again"
                )


async def republished_position(
    task: RepublishTask, origin: Link, target: Link, info: Target, last: int, confirmed: int = 0
) -> Resume:
    """Where to go on, from what the results' stream holds.

    Args:
        task: what is done.
        origin: the connection that holds the history's stream.
        target: the connection that holds the results' stream.
        info: that stream.
        last: its last sequence.
        confirmed: the sequence up to which everything is known to be stored; 0 for none.

    Raises:
        ApiError: a server cannot be asked.
    """
    marks = b"\r\nNats-Stream: %b\r\nNats-Subject: " % task.stream.encode()

    def record_of(block: bytes) -> SourceRecord | None:
        at = block.rfind(marks)
        if at < 0:
            return None
        subject, _, rest = block[at + len(marks) :].partition(b"\r\nNats-Sequence: ")
        number = rest.partition(b"\r\n")[0]
        if not number.isdigit() or int(number) > task.last:
            return None
        return SourceRecord(task.stream.encode(), int(number), subject=subject)

    tail = await read_tail(
        target.api, task.captured_by, last, lambda _: True, 2 * MOST_UNCONFIRMED, rule=task.rule, record_of=record_of
    )
    # What another rule republished of the same stream has other subjects; older ones are of an earlier stream.
    is_random = task.republish.transform.is_random
    copies = tuple(
        copy
        for copy in tail.copies
        if copy.time_ns >= task.created_ns
        and (is_random or task.republish.destination(copy.record.subject) == copy.subject)
    )
    if confirmed:
        return Resume(confirmed, frozenset(c.record.sequence for c in copies if c.record.sequence > confirmed))
    if not copies:
        return Resume(task.outcomes.first - 1)
    return await compared(origin.api, task.stream, task.filters, task.republish, info, replace(tail, copies=copies))
