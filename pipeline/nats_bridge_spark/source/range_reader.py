"""A batch read: planned once, then each range of a stream read by one task, as record batches."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from nats_bridge.client.connection import Connection
from nats_bridge.client.waiting import LEADER_AWAY
from nats_bridge.consuming.replay import Replay
from nats_bridge.errors import ApiError, NotPermittedError
from nats_bridge_spark.connections import connected_by_options
from nats_bridge_spark.errors import DataLostError, UnreachableError, marking
from nats_bridge_spark.source.bulk_parsing import BulkParser
from nats_bridge_spark.source.loop_thread import LoopThread
from nats_bridge_spark.source.planning import SequenceRange, planned
from nats_bridge_spark.source.read_options import ReadOptions
from nats_bridge_spark.source.record_batches import Arrived, record_batch
from nats_bridge_spark.source.stream_state import holds_any, state_of

_Item = TypeVar("_Item")

_ROWS: Final = 10_000  # approximate rows of a record batch; larger batches are not faster
_BYTES: Final = 8 * 1024 * 1024  # of a record batch, about


class BatchReader(DataSourceReader):
    """Reads the messages that the stream has when the read is planned.

    It has no `pushFilters`. Spark keeps the plan of a read with pushed filters for all queries of the same DataFrame,
    also for those with other filters, which then miss rows (PySpark 4.3.0).
    """

    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Return the ranges that tasks read, one each."""
        with marking():
            return list(asyncio.run(planned(self._options)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's rows. If there is nothing to read, Spark passes a partition of another type."""
        if isinstance(partition, SequenceRange):
            yield from iterated(arriving_range(self._options, self._schema, partition))


def iterated(items: AsyncGenerator[_Item, None]) -> Iterator[_Item]:
    """Yield the items of a generator that runs in a thread. Errors leave it marked."""

    async def following() -> _Item | None:
        return await anext(items, None)

    with marking(), LoopThread() as loop:
        try:
            while (item := loop.run(following())) is not None:
                yield item
        finally:
            with contextlib.suppress(RuntimeError):  # interrupted while it runs: it ends with the loop
                loop.run(items.aclose())


async def arriving(options: ReadOptions, schema: pa.Schema) -> AsyncGenerator[pa.RecordBatch, None]:
    """Plan a read and yield its rows, on the caller's event loop, because threads would contend for the interpreter.

    Raises the errors of `arriving_range` and `planned`.
    """
    for part in await planned(options):
        async with contextlib.aclosing(arriving_range(options, schema, part)) as batches:
            async for batch in batches:
                yield batch


async def arriving_range(
    options: ReadOptions, schema: pa.Schema, part: SequenceRange
) -> AsyncGenerator[pa.RecordBatch, None]:
    """Read a range, each message once, in order, on the caller's event loop.

    Raises:
        DataLostError: the stream has removed messages of the planned range.
        UnreachableError: no server, or it went away for longer than a task waits.
        PipelineError: the server refuses.
    """
    reading = _Reading(options, part)
    async with connected_by_options(options.connection) as connection:
        at = part.first
        await reading.check(connection, at)
        async with contextlib.aclosing(_joined(reading.messages(connection))) as portions:
            async for portion in portions:
                sequences, _ = portion.numbers()
                # Missing sequences may never have had messages.
                if portion.last - at + 1 != len(portion):
                    gap = int(np.argmax(sequences != np.arange(at, at + len(sequences))))
                    await reading.check(connection, at + gap)
                yield record_batch(portion, part.stream, schema)
                at = portion.last + 1
        await reading.check(connection, at)


@dataclass(frozen=True, slots=True)
class _Reading:
    options: ReadOptions
    part: SequenceRange

    async def messages(self, connection: Connection) -> AsyncGenerator[Arrived, None]:
        """Yield the messages that still exist in the range.

        A new consumer resumes after the last arrived one, as often as needed.
        """
        at, last, stream = self.part.first, self.part.last, self.part.stream
        replay = Replay(connection.api, stream, self.options.subjects, headers_only=not self.options.payload)
        refused: list[str] = []
        connection.on_refusal(refused.append)
        loop = asyncio.get_running_loop()
        until = loop.time() + self.options.patience
        while at <= last:
            begun = at
            try:
                async with contextlib.aclosing(replay.in_bulk(at, BulkParser)) as arriving:
                    async for batch in arriving:
                        arrived = batch if isinstance(batch, Arrived) else Arrived.of(batch)
                        at = arrived.last + 1
                        if at > last + 1:
                            arrived = arrived.first(int(np.searchsorted(arrived.numbers()[0], last, "right")))
                        if len(arrived):
                            yield arrived if self.options.payload else arrived.without_size_headers()
                        if at > last:
                            return
            except ApiError as error:
                if any("$JS.FC." in text for text in refused):  # so the server waits for an answer that it refuses
                    raise NotPermittedError(f"connection '{connection.name}'", f"$JS.FC.{stream}.>") from None
                if not error.retriable:
                    raise
                if at > begun:
                    until = loop.time() + self.options.patience
                await self._await_server(connection, until, str(error))
                continue
            if at == begun:
                if not await holds_any(connection, stream, self.options.subjects, at, last, unknown=False):
                    return
                await self._await_server(connection, until, f"message {at} or a later one does not come")

    async def check(self, connection: Connection, at: int) -> None:
        """Check that the stream is the planned one, and still has the messages from a sequence of the range on."""
        part = self.part
        state = await state_of(connection, part.stream)
        if state.is_another_than(part.known):
            raise DataLostError(
                f"stream '{part.stream}': was recreated at {state.created}; the read was planned for the one of"
                f" {part.known.created}: read it again"
            )
        if self.options.fail_on_data_loss:
            remedy = "read it again, or set failOnDataLoss=false to continue without them"
            state.require_held(at, part.last, remedy)

    async def _await_server(self, connection: Connection, until: float, why: str) -> None:
        """Wait until the connection is up, for a limited time. The stream must be the same then."""
        try:
            async with asyncio.timeout_at(until):
                await LEADER_AWAY.pause()
                await connection.connected()
                await self.check(connection, self.part.last + 1)
        except (TimeoutError, ApiError):
            raise UnreachableError(
                f"nothing more comes from {', '.join(connection.servers)} for {self.options.patience} s ({why});"
                " run the job again when the server is back"
            ) from None


async def _joined(messages: AsyncGenerator[Arrived, None]) -> AsyncGenerator[Arrived, None]:
    """Join messages to portions of a good size for record batches."""
    gathered: list[Arrived] = []
    async with contextlib.aclosing(messages):
        async for arrived in messages:
            gathered.append(arrived)
            if sum(map(len, gathered)) >= _ROWS or sum(part.size for part in gathered) >= _BYTES:
                yield Arrived.joined(gathered)
                gathered = []
    if gathered:
        yield Arrived.joined(gathered)
