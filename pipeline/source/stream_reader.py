"""Streaming read: offsets are the stream's identity and a sequence; each batch is ranges as in a batch read."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from nats_bridge.bridge.replication import Connection, Replay
from nats_bridge.pipeline.connections import connected
from nats_bridge.pipeline.errors import DataLostError, OptionError, marking
from nats_bridge.pipeline.source.loop_thread import LoopThread
from nats_bridge.pipeline.source.planning import SequenceRange, check_filters, cut, stored_before
from nats_bridge.pipeline.source.range_reader import read_range
from nats_bridge.pipeline.source.read_options import ReadOptions
from nats_bridge.pipeline.source.schema import ReadSchema
from nats_bridge.pipeline.source.stream_state import StreamState, state_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:  # PySpark 4.1: a batch is all that there is, whatever the trigger

        class SupportsTriggerAvailableNow:
            """Not known to this PySpark."""


__all__ = ["StreamReader"]

_Result = TypeVar("_Result")

_LEAST: Final = 10_000
"""Messages in a range: for fewer, a task more costs more than it saves."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what the stream holds, then what comes, batch after batch.

    An offset is `{"created": …, "sequence": …}`: when the stream was created, and the last sequence that is done. On
    the driver, one connection serves all questions until the query ends; tasks have their own.

    Args:
        options: what to read.
        schema: the columns.
    """

    def __init__(self, options: ReadOptions, schema: ReadSchema) -> None:
        if options.end_sequence is not None or options.end_time is not None:
            name = "endTime" if options.end_sequence is None else "endSequence"
            raise OptionError(
                f"option {name}: a streaming read has no end; read a batch, or say trigger(availableNow=True)"
            )
        self._options = options
        self._schema = schema
        self._driver: _Driver | None = None
        self._upto: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_driver": None}

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins."""
        with marking():
            return self._ask().run(self._initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        """How much a batch may hold, from the options."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

        rows = self._options.max_rows_per_trigger
        return ReadMaxRows(rows) if rows else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on, behave as if nothing more came."""
        with marking():
            self._upto = self._ask().state().last

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """How far the next batch goes.

        Args:
            start: where it begins; None from PySpark 4.1, which also does without limits.
            limit: how many rows it may hold.

        Raises:
            DataLostError: the stream was recreated, or the stream has removed what comes next.
        """
        with marking():
            driver = self._ask()
            state = driver.state()
            last = state.last if self._upto is None else min(state.last, self._upto)
            if start is None:
                return _offset(state, last)
            self._check(state, start)
            done = max(int(start["sequence"]), state.first - 1)
            rows = getattr(limit, "max_rows", None)
            if rows is not None and last - done > rows:
                last = driver.run(self._within(driver.connection, state, done, last, rows))
            return _offset(state, max(last, int(start["sequence"])))

    def reportLatestOffset(self) -> dict[str, Any]:
        """How far the stream goes, for the query's progress."""
        with marking():
            state = self._ask().state()
            return _offset(state, state.last)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The ranges of a batch.

        Raises:
            DataLostError: the stream was recreated, or the stream has removed what comes next.
        """
        with marking():
            if int(end["sequence"]) <= int(start["sequence"]):
                return []
            driver = self._ask()
            state = driver.state(listing=True)
            self._check(state, start)
            self._check(state, end, whole=False)
            first = max(int(start["sequence"]) + 1, state.first)
            last = int(end["sequence"])
            if first > last:
                return []
            return list(driver.run(cut(driver.connection, self._options, state, first, last, least=_LEAST)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A task's rows."""
        if isinstance(partition, SequenceRange):
            yield from read_range(self._options, self._schema, partition)

    def stop(self) -> None:
        """Close the driver's connection."""
        if self._driver is not None:
            self._driver.close()
            self._driver = None

    def _ask(self) -> _Driver:
        if self._driver is not None and self._driver.connection.client.is_closed:
            self.stop()
        if self._driver is None:
            self._driver = _Driver(self._options)
        return self._driver

    async def _initial(self) -> dict[str, Any]:
        assert self._driver is not None
        connection = self._driver.connection
        state = await state_of(connection, self._options.stream)
        done = max(state.first, self._options.start_sequence or 1) - 1
        if self._options.start_time:
            done = max(done, await stored_before(connection, self._options, self._options.start_time))
        return _offset(state, done)

    async def _within(self, connection: Connection, state: StreamState, done: int, last: int, rows: int) -> int:
        """The last sequence of a batch that begins after `done` and holds at most so many rows."""
        least = done + rows
        if not state.limits or (state.messages == state.last - state.first + 1 and not self._options.subjects):
            return least
        after = Replay(connection.api, state.name, self._options.subjects).after
        there = await after(done)
        low, high = least, last  # up to low there are few enough
        if there - await after(last) <= rows:
            return last
        while high - low > 1:
            middle = (low + high) // 2
            count = there - await after(middle)
            if count > rows:
                high = middle
            else:
                low = middle
                if count >= rows - rows // 10:
                    break
        return low

    def _check(self, state: StreamState, offset: dict[str, Any], *, whole: bool = True) -> None:
        if state.created != offset["created"]:
            raise DataLostError(
                f"stream '{state.name}': was recreated at {state.created}; the checkpoint is of the one of"
                f" {offset['created']}: begin with a new checkpoint location"
            )
        following = int(offset["sequence"]) + 1
        if whole and self._options.fail_on_data_loss and state.limits and state.first > following:
            raise DataLostError(
                f"stream '{state.name}': messages {following} to {state.first - 1} were removed unread, it"
                f" now begins at {state.first}: say failOnDataLoss=false to continue without them, or begin with a new"
                " checkpoint location"
            )


class _Driver:
    """The driver's connection, in a loop of its own."""

    def __init__(self, options: ReadOptions) -> None:
        self._stack = AsyncExitStack()
        self._stream = options.stream
        self._loop = LoopThread()
        try:
            self.connection = self._loop.run(self._stack.enter_async_context(connected(options.connection)))
            check_filters(self.connection, options)
        except BaseException:
            self.close()
            raise

    def state(self, *, listing: bool = False) -> StreamState:
        """What the stream holds now."""
        return self.run(state_of(self.connection, self._stream, listing=listing))

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Run a coroutine; its result."""
        return self._loop.run(work)

    def close(self) -> None:
        """Close the connection and end the loop."""
        self._loop.run(self._stack.aclose())
        self._loop.close()


def _offset(state: StreamState, sequence: int) -> dict[str, Any]:
    return {"created": state.created, "sequence": sequence}
