"""One task's rows on their way into the stream: pipelined, in order, each once.

The bridge's `Publisher` does what can be done within a connection. When it is unknown what was stored (the
connection broke, an answer did not come), the task asks the stream what it holds of the rows that are in flight, and
continues with the others, as a later attempt of Spark's would.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from nats_bridge.bridge.client.jetstream_api import NOT_ENABLED, STREAM_NOT_FOUND, Json
from nats_bridge.bridge.client.tasks import end_tasks
from nats_bridge.bridge.errors import ApiError, BridgeError
from nats_bridge.bridge.kinds.copying.counters import CopyCounters
from nats_bridge.bridge.kinds.copying.encoder import Operation
from nats_bridge.bridge.kinds.copying.last_sequence_probe import last_sequence_behind
from nats_bridge.bridge.kinds.copying.pub_ack import Verdict
from nats_bridge.bridge.kinds.copying.publisher import Publisher
from nats_bridge.bridge.kinds.copying.target import Target
from nats_bridge.bridge.kinds.copying.window import LEAST, Window
from nats_bridge.bridge.observability.rule_metrics import Measures
from nats_bridge.pipeline.connections import connected
from nats_bridge.pipeline.errors import DataLostError, OptionError, PipelineError, RowError, UnreachableError
from nats_bridge.pipeline.sink.bundling import BundleBuilder, ForeignSubjectError
from nats_bridge.pipeline.sink.earlier_attempts import EarlierAttempts
from nats_bridge.pipeline.sink.plan import TaskPlace, WritePlan
from nats_bridge.pipeline.sink.row_bundle import RowBundle, first_with, rows_together
from nats_bridge.pipeline.sink.row_ids import RowId, RowPlace, write_key
from nats_bridge.pipeline.sink.stored_rows import StoredRows, read_range
from nats_bridge.pipeline.source.stream_state import state_of
from nats_bridge.transforms import header_block

__all__ = ["PartitionWrite", "Written"]

_Answer = TypeVar("_Answer")

_PIECE: Final = 4096  # rows that become messages together
_MOST_IN_ORDER: Final = 4 * LEAST  # messages in flight of the only task
_LONG_WINDOW: Final = 60 * 10**9  # nanoseconds
_DOUBTED: Final = 1024  # messages that a publisher may ask for again after it has told that they are stored
_PAUSE: Final = 0.1  # seconds until the next try
_LONGEST_PAUSE: Final = 2.0
_LOOK: Final = 0.25  # seconds between two looks whether anything moves


@dataclass(frozen=True, slots=True)
class Written:
    """What a task has done.

    Attributes:
        rows: how many rows it had.
        already: how many of them the stream held before, from an earlier attempt or under an id of their own.
        interruptions: how often it had to ask the stream what was stored.
        waits: how often the stream took nothing for a while.
    """

    rows: int = 0
    already: int = 0
    interruptions: int = 0
    waits: int = 0


class PartitionWrite:
    """Writes the rows of one task.

    Args:
        plan: the write.
        task: which task it is.
    """

    def __init__(self, plan: WritePlan, task: TaskPlace) -> None:
        self._plan = plan
        self._task = task
        self._stream = plan.options.stream
        self._patience = plan.options.patience
        self._place = RowPlace(write_key(task.query if plan.streaming else plan.write_id), task.batch, task.partition)
        self._counters = CopyCounters()
        self._measures = Measures()
        self._error: BaseException | None = None
        self._trouble = asyncio.Event()
        self._reason = ""
        self._interruptions = 0
        self._idle = False  # whether it waits for rows
        self._rows = 0
        self._saw_ids = False
        self._builder: BundleBuilder | None = None
        self._publishers: list[Publisher] = []  # the present one last
        self._watcher: asyncio.Task[None] | None = None
        self._stack = contextlib.AsyncExitStack()
        self._under_way: deque[RowBundle] = deque()  # sent, and not known to be stored
        self._confirmed = 0  # the name of the last row that is known to be stored, beyond doubt
        self._behind = 0  # of the target's sequences: what is in flight is stored after it
        self._sent = 0  # rows that the present publisher was given
        self._told: deque[tuple[int, int, int]] = deque()  # lately: how many of them are stored, and the same two then

    @property
    def waits(self) -> bool:
        """Whether the stream takes nothing at the moment, so that the task waits for room in it."""
        return bool(self._publishers) and self._publisher.waiting

    async def add(self, batch: pa.RecordBatch) -> None:
        """Write a batch of rows; returns when it is in flight.

        Args:
            batch: the rows, with columns as the plan's layout says.

        Raises:
            RowError: a row cannot be written, or the stream refuses it.
            UnreachableError: no server, for longer than the patience allows.
            PipelineError: the stream is missing, full for too long, or another one.
        """
        if not batch.num_rows:
            return
        self._idle = False
        start = 0
        if self._builder is None:
            self._builder, start = await self._begin(batch)
        step = _step(batch, self._most_unconfirmed)
        for at in range(start, batch.num_rows, step):
            await self._send(await self._built(self._builder, batch.slice(at, step), self._rows + at))
        self._rows += batch.num_rows
        self._idle = True

    async def finish(self) -> Written:
        """Wait until all rows are known to be stored.

        Returns:
            What was done. Errors as for `add`.
        """
        self._idle = False
        if self._builder is not None:
            await self._settled()
            self._earlier.remember()
        counters = self._counters
        already = counters.duplicates + (self._builder.already if self._builder else 0)
        return Written(self._rows, already, self._interruptions, counters.waits)

    async def close(self) -> None:
        """Close the connection; what is not confirmed stays unknown."""
        await end_tasks(self._watcher)
        for publisher in self._publishers:
            with contextlib.suppress(BridgeError, OSError):
                await publisher.close()
        await self._stack.aclose()

    # -- beginning ---------------------------------------------------------------------------------------------------

    def _refuse_second_partition(self) -> None:
        plan = self._plan
        if plan.options.ordered and self._task.partition:
            # Spark tells no task how many there are, so the first one may have stored rows by now.
            again = "start the query again" if plan.streaming else f'say .option("writeId", "{plan.name}")'
            raise OptionError(
                f"an ordered write is one task's, and partition {self._task.partition} has rows, too. What partition 0"
                f" has stored stays: put .coalesce(1) before the write and {again}, and the rest is stored in order,"
                ' nothing twice; or .option("ordered", "false"): partitions at the same time, unordered'
            )

    async def _begin(self, batch: pa.RecordBatch) -> tuple[BundleBuilder, int]:
        """Ready to send; and how many rows of the batch are sent already."""
        self._refuse_second_partition()
        name = f"nats-bridge-spark-write {self._stream}"
        opening = connected(self._plan.options.connection, client_name=name, no_echo=True)
        self._link = await self._stack.enter_async_context(opening)
        info = await self._info()
        target = self._target = Target.of(info, self._link.server_version)
        builder = BundleBuilder(
            self._plan.layout,
            self._place,
            target,
            max_payload=self._link.client.max_payload,
            check_subjects=self._plan.options.check_subjects,
        )
        first = await self._built(builder, batch.slice(0, 1), 0)
        self._probe = first.subjects[0].as_py()
        last = await self._open(target)
        self._watcher = asyncio.create_task(self._watch())
        self._earlier = EarlierAttempts(self._plan, self._task, self._place, self._link)
        look = await self._patiently(self._earlier.look, info, last)
        if look == "nothing":
            return builder, 0
        if look == "ask":
            await self._send(first)
            await self._settled()
            if not self._counters.duplicates and not self._interruptions:
                return builder, 1
            self._counters.duplicates = 0
        builder.stored = await self._patiently(self._earlier.stored, info, last)
        return builder, 0

    async def _built(self, builder: BundleBuilder, batch: pa.RecordBatch, first: int) -> RowBundle:
        try:
            bundle = builder.build(batch, first)
        except ForeignSubjectError as error:
            names = await self._patiently(partial(self._link.api.stream_names, subject=error.subject))
            others = ", ".join(f"'{name}'" for name in names if name != self._stream)
            raise RowError(f"{error}; {f'stream {others} does' if others else 'no stream does'}") from None
        if builder.saw_ids and not self._saw_ids:
            self._saw_ids = True  # from now on the stream reports duplicates
            if self._publishers:
                self._publisher.ask_for_all()
        return bundle

    async def _info(self) -> Json:
        """The stream's `STREAM.INFO`.

        Raises:
            PipelineError: it does not exist, is not the one that the write was planned for, or takes nothing.
        """
        info = await self._patiently(self._link.api.stream_info, self._stream)
        if self._plan.created and str(info["created"]) != self._plan.created:
            raise DataLostError(
                f"stream '{self._stream}' was recreated while it was written to: what was stored before"
                " is gone with it; begin the write again"
            )
        return info

    @property
    def _most_unconfirmed(self) -> int:
        # With more in flight, the server waits for us less often. But many tasks could have too much wait in it; and
        # what is asked for again must have come to its turn while the ids of the first time are remembered.
        few = not self._plan.options.ordered or self._link.server_version.startswith("2.11.")
        return LEAST if few or self._target.window_ns < _LONG_WINDOW else _MOST_IN_ORDER

    async def _open(self, target: Target) -> int:
        """A publisher that is ready; the target's last sequence behind everything that this task has sent."""
        self._trouble.clear()
        publisher = Publisher(
            self._link,
            target,
            self._counters,
            self._measures,
            self._refused,
            self._interrupted,
            self._failed,
            rule=f"write to {self._stream}",
            alone=self._plan.options.ordered and not self._saw_ids,
            window=Window(self._most_unconfirmed, least=self._most_unconfirmed),
        )
        self._publishers, self._sent = [publisher], 0
        await publisher.open()
        try:
            async with asyncio.timeout(self._patience):
                last = await last_sequence_behind(self._link, self._stream, self._probe)
        except TimeoutError:
            raise UnreachableError(
                f"stream '{self._stream}' at {self._servers} gives no answer for {self._patience:g} s"
            ) from None
        if last < self._behind:
            raise DataLostError(
                f"stream '{self._stream}' has lost messages that it had stored: it ends at sequence {last}, and ended"
                f" at {self._behind}; begin the write again"
            )
        publisher.begin(last)
        self._behind = max(self._behind, last) if not self._under_way else self._behind
        return last

    # -- sending -----------------------------------------------------------------------------------------------------

    async def _send(self, bundle: RowBundle) -> None:
        if not bundle:
            return
        self._under_way.append(bundle)
        await self._publish(bundle)
        self._forget_stored()
        await self._mended()

    async def _publish(self, bundle: RowBundle) -> None:
        self._sent += len(bundle)
        waiting = self._publisher.send(bundle)
        if waiting is not None:
            await waiting

    async def _settled(self) -> None:
        while True:
            await self._publisher.settled()
            # Writes by others arrive before the answer: then everything is asked for again.
            await self._link.flush()
            self._forget_stored()
            await self._mended()
            if not self._publisher.has_work and not self._trouble.is_set():
                return

    def _forget_stored(self) -> None:
        told, (name, behind) = self._told, self._publisher.confirmed
        stored = self._sent - self._publisher.in_flight.messages
        if name > (told[-1][1] if told else self._confirmed):
            told.append((stored, name, behind))
        while told and told[0][0] <= stored - _DOUBTED:
            _, self._confirmed, self._behind = told.popleft()
        under_way = self._under_way
        while under_way and under_way[0].names[-1] <= self._confirmed:
            under_way.popleft()

    async def _mended(self) -> None:
        """Where there was trouble, find out what is stored, and send the rest."""
        pause = _PAUSE
        while self._trouble.is_set():
            if self._error is not None:
                raise self._error
            self._interruptions += 1
            await self._publisher.close()
            self._forget_stored()
            self._keep([bundle.behind(self._confirmed) for bundle in self._under_way])
            self._told.clear()
            try:
                await self._resume()
            except ApiError as error:
                if not error.passing:
                    raise
                self._interrupted(str(error))
            if self._trouble.is_set():
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    async def _resume(self) -> None:
        await self._connected()
        info = await self._info()
        target = self._target = Target.of(info, self._link.server_version)
        left = list(self._under_way)
        if self._plan.options.check_subjects:
            self._check_subjects(target, left)
        last = await self._open(target)
        if left:
            stored = await read_range(
                self._link.api, info, self._behind + 1, last, self._place, ids=self._plan.layout.brings_ids
            )
            left = self._keep([_without(bundle, stored) for bundle in left])
        for bundle in left:
            await self._publish(bundle)
        self._forget_stored()

    def _check_subjects(self, target: Target, left: list[RowBundle]) -> None:
        for bundle in left:
            for subject in pc.unique(bundle.subjects).to_pylist():
                if not target.takes(subject):
                    at = first_with(subject, bundle.subjects)
                    (operation,) = bundle.operations(at, at + 1)
                    raise self._wrong(operation, f"stream '{self._stream}' does not store this subject any more")

    def _keep(self, bundles: list[RowBundle]) -> list[RowBundle]:
        """Nothing else is in flight."""
        left = [bundle for bundle in bundles if bundle]
        self._under_way = deque(left)
        return left

    async def _connected(self) -> None:
        try:
            async with asyncio.timeout(self._patience):
                await self._link.connected()
        except TimeoutError:
            raise UnreachableError(
                f"the connection to {self._servers} was lost and is not back after {self._patience:g} s"
            ) from None

    async def _patiently(self, ask: Callable[..., Awaitable[_Answer]], *args: object) -> _Answer:
        """An answer of the server, asked again while waiting can help."""
        deadline = asyncio.get_running_loop().time() + self._patience
        while True:
            await self._connected()
            try:
                return await ask(*args)
            except ApiError as error:
                if error.err_code == STREAM_NOT_FOUND:
                    await state_of(self._link, self._stream)  # which says so
                if not error.passing or error.err_code == NOT_ENABLED:
                    raise
                if asyncio.get_running_loop().time() > deadline:
                    raise UnreachableError(f"{error}; tried for {self._patience:g} s") from None
            await asyncio.sleep(_PAUSE)

    # -- what the publisher and the clock tell -----------------------------------------------------------------------

    def _interrupted(self, reason: str) -> None:
        self._reason = reason
        self._trouble.set()

    def _failed(self, error: BaseException) -> None:
        if self._error is None:
            self._error = error
        self._trouble.set()

    async def _refused(self, operation: Operation, verdict: Verdict) -> None:
        raise self._wrong(operation, f"stream '{self._stream}' refuses it: {verdict.description} ({verdict.err_code})")

    def _wrong(self, operation: Operation, why: str) -> RowError:
        return RowError(
            f"row {int(operation[0]) - 1} of partition {self._task.partition}"
            f" (subject '{_subject(operation).decode('utf-8', 'replace')}'): {why}"
        )

    async def _watch(self) -> None:
        """End a task that does not move, with what keeps it."""
        loop = asyncio.get_running_loop()
        moved, at = (-1, -1), loop.time()
        while True:
            await asyncio.sleep(min(_LOOK, self._patience / 4))
            now = self._publisher.progress
            if self._idle or now != moved or not (self._publisher.has_work or self._trouble.is_set()):
                moved, at = now, loop.time()
            elif loop.time() - at > self._patience:
                what = (
                    "takes no messages: it is full"
                    if self.waits
                    else f"confirms no messages ({self._reason or 'no answers'})"
                )
                self._failed(
                    PipelineError(
                        f"stream '{self._stream}' {what}, for {self._patience:g} s; make room, or wait longer with"
                        ' .option("patience", seconds)'
                    )
                )
                self._publisher.interrupt("out of patience")
                return

    @property
    def _publisher(self) -> Publisher:
        return self._publishers[-1]

    @property
    def _servers(self) -> str:
        return ", ".join(self._link.servers)


def _step(batch: pa.RecordBatch, most_unconfirmed: int) -> int:
    """How many rows of a batch become messages together."""
    return rows_together(batch, min(_PIECE, most_unconfirmed // 8))


def _subject(operation: Operation) -> bytes:
    data = operation[1]
    return data[5 : data.index(b" ", 5)]


def _without(bundle: RowBundle, stored: StoredRows) -> RowBundle:
    """The rows that are not stored."""
    return bundle.kept([at for at, block in enumerate(bundle.blocks.to_pylist()) if not _is_stored(block, stored)])


def _is_stored(block: bytes, stored: StoredRows) -> bool:
    message_id = header_block.read(block, b"Nats-Msg-Id")
    known = RowId.parse(message_id)
    if known is None:
        return message_id in stored.ids
    return stored.check_of(known.row) == known.check or stored.was_removed(known.row)
