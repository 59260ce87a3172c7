"""Implements the streaming read for Spark. Each batch consists of ranges of the streams, as in a batch read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from nats_bridge.client.connection import Connection
from nats_bridge_spark.connections import connected_by_options
from nats_bridge_spark.errors import DataLostError, OptionError, marking
from nats_bridge_spark.source.followed_stream import FollowedStream, Position, offset_of, positions_of
from nats_bridge_spark.source.loop_thread import LoopThread
from nats_bridge_spark.source.planning import SequenceRange, check_filters, cores, divided
from nats_bridge_spark.source.range_reader import arriving_range, iterated
from nats_bridge_spark.source.read_options import ReadOptions
from nats_bridge_spark.source.stream_state import states_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:  # PySpark 4.1: a batch always contains everything available, for any trigger

        class SupportsTriggerAvailableNow:
            """Not known to this PySpark."""


_Result = TypeVar("_Result")

_IDLE_REQUESTS: Final = 2  # to the servers in a second, while nothing waits
_LONGEST_PAUSE: Final = 5.0  # seconds between two questions while nothing waits, however many streams they are about


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the streams' present messages, then new ones, batch after batch.

    `followed_stream` defines an offset. One batch notices a new stream whose name matches, and the following ones read
    it from its beginning, so each batch has a begin in each of its streams. On the driver, one connection serves all
    requests until the query ends; tasks have their own.
    """

    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        if options.end_sequence is not None or options.end_time is not None:
            name = "endTime" if options.end_sequence is None else "endSequence"
            raise OptionError(
                f"option {name}: a streaming read has no end; read a batch, or say trigger(availableNow=True)"
            )
        self._options = options
        self._schema = schema
        # The driver's event loop, its connection, and a function that closes both.
        self._opened: tuple[LoopThread, Connection, Callable[[], None]] | None = None
        self._upto: dict[str, int] | None = None  # the last sequences of a query that ends
        self._ends: dict[str, Position] = {}  # of the newest batch
        # the start of the newest batch, because none is delayed for longer than the options allow
        self._began: float | None = None
        self._too_few: dict[str, int] = {}  # the last sequences up to which too few messages waited
        self._found: list[FollowedStream] = []  # by the newest question after the end
        # by name and creation: two sequences between which there is nothing to read
        self._passed: dict[tuple[str, str], tuple[int, int]] = {}
        self._left_out: set[str] = set()  # streams
        self._asks_at = 0.0  # the time of the next request of an idle query
        self._reported: tuple[Any, dict[str, Any]] | None = None  # the offset and the metrics reported for it

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None, "_found": [], "_reported": None}

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset at which a query without a checkpoint begins."""
        with marking():
            return offset_of(self._run(self._ends_of({}, None)), self._options)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a batch from the options.

        With both a minimum and a maximum, `latestOffset` applies them.
        """
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

        most, least = self._options.max_rows_per_trigger, self._options.min_rows_per_trigger
        if most:
            return ReadMaxRows(most)
        return ReadMinRows(least) if least else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on, behave as if nothing more came."""
        with marking():
            self._upto = {one.name: one.state.last for one in self._run(self._streams({}))}

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """Return the end of the next batch, which is its begin while no messages to read wait.

        Args:
            start: the begin of the batch; None from PySpark 4.1, which has no limits either.

        Raises:
            DataLostError: a stream was recreated or deleted, or has removed the next messages.
        """
        with marking():
            begun = self._ends if start is None else positions_of(start, self._options)
            if start is None and not begun:
                self._ends = {one.name: one.at(one.state.last) for one in self._run(self._streams({}))}
            else:
                self._ends = self._run(self._next(begun, limit))
            return offset_of(self._ends, self._options)

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the ends of the streams, and the messages left by the newest batch."""
        with marking():
            return self._run(self._report())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the ranges of a batch, or raise a `DataLostError` as `latestOffset` does."""
        with marking():
            begun, ends = positions_of(start, self._options), positions_of(end, self._options)
            later = {name: at for name, at in ends.items() if name not in begun or at.sequence > begun[name].sequence}
            return list(self._run(self._ranges(begun, later))) if later else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's rows."""
        if isinstance(partition, SequenceRange):
            yield from iterated(arriving_range(self._options, self._schema, partition))

    def stop(self) -> None:
        """Close the driver's connection."""
        if self._opened is not None:
            self._opened[2]()
            self._opened = None

    def _run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        if self._opened is not None and self._connection.client.is_closed:
            self.stop()
        if self._opened is None:
            with ExitStack() as opened:
                loop = opened.enter_context(LoopThread())
                connection = opened.enter_context(loop.within(connected_by_options(self._options.connection)))
                check_filters(connection, self._options)
                self._opened = loop, connection, opened.pop_all().close
        return self._opened[0].run(work)

    @property
    def _connection(self) -> Connection:
        assert self._opened is not None  # the running work runs on it
        return self._opened[1]

    async def _streams(self, begun: Mapping[str, Position]) -> list[FollowedStream]:
        """Return the read's streams as they are now, each from its position on."""
        options = self._options
        found = await self._followed(options.streams or (options.stream,), begun)
        if options.fail_on_data_loss and (gone := sorted(set(begun) - {one.name for one in found})):
            raise DataLostError(
                f"stream '{gone[0]}': was deleted; set failOnDataLoss=false to continue without it, or begin with a new"
                " checkpoint location"
            )
        self._found = found
        return found

    async def _followed(self, wanted: Sequence[str], begun: Mapping[str, Position]) -> list[FollowedStream]:
        connection, options = self._connection, self._options
        return [
            FollowedStream(
                connection, options.of_stream(state.name), state, begun.get(state.name, Position(state.known, 0))
            )
            for state in await states_of(connection, wanted, self._left_out)
        ]

    async def _next(self, begun: dict[str, Position], limit: ReadLimit | None) -> dict[str, Position]:
        """Return the end of the next batch in each stream.

        While nothing waits, Spark calls this a hundred times a second. Servers receive at most two requests a second,
        but a read of many streams sends one for each in some seconds.
        """
        if self._upto is None:
            await asyncio.sleep(self._asks_at - time.monotonic())
        client = self._connection.client
        asked = client.stats["out_msgs"]
        ends = await self._ends_of(begun, limit)
        if ends == begun:
            pause = min((client.stats["out_msgs"] - asked) / _IDLE_REQUESTS, _LONGEST_PAUSE)
            self._asks_at = time.monotonic() + pause
        return ends

    async def _ends_of(self, begun: dict[str, Position], limit: ReadLimit | None) -> dict[str, Position]:
        streams, upto = await self._streams(begun), self._upto
        if upto is not None:
            streams = [one for one in streams if one.name in upto]
        followed = [one for one in streams if one.name in begun]
        for one in followed:
            await self._find_done(one)
            one.check()
            one.last = one.state.last if upto is None else min(one.state.last, upto[one.name])
            if not await one.holds_any():
                self._pass(one)
            one.last = max(one.last, one.done)
        if await self._is_too_early(followed, limit):
            return begun
        rows = getattr(limit, "max_rows", None)
        if rows is not None:
            await _limit(followed, rows)
        ends = {one.name: one.end for one in followed}
        if ends != begun:
            self._began = time.monotonic()
        return ends | {one.name: await one.beginning() for one in streams if one.name not in begun}

    async def _find_done(self, one: FollowedStream) -> None:
        done = await one.done_of(one.begin)
        low, high = self._passed.get((one.name, one.state.created), (0, 0))
        one.done = max(high, done) if low <= done else done

    def _pass(self, one: FollowedStream) -> None:
        """Record that there is nothing to read in a batch, and go on behind the last such sequence known."""
        key, done, last = (one.name, one.state.created), one.done, one.last
        low, high = self._passed.get(key, (done, done))
        self._passed[key] = (low, max(last, high)) if low <= done <= high else (done, max(last, done))
        one.done = self._passed[key][1]

    async def _is_too_early(self, streams: list[FollowedStream], limit: ReadLimit | None) -> bool:
        """Return whether the batch has to wait for more messages, as Spark's source for Kafka decides.

        A query that ends never waits, nor does its first batch.
        """
        least = getattr(limit, "min_rows", None)
        if least is None and hasattr(limit, "max_rows"):
            least = self._options.min_rows_per_trigger
        if not least or self._upto is not None or self._began is None:
            return False
        if time.monotonic() - self._began >= self._options.max_trigger_delay:
            return False
        lasts = {one.name: one.last for one in streams}
        if sum(one.last - one.done for one in streams) < least or lasts == self._too_few:
            return True
        if sum([await one.waiting() for one in streams]) >= least:
            return False
        self._too_few = lasts
        return True

    async def _report(self) -> dict[str, Any]:
        streams = self._found or await self._streams({})
        ends = {one.name: one.at(one.state.last) for one in streams}
        about = (self._ends, ends)
        if self._reported is None or self._reported[0] != about:
            for one in streams:
                end = self._ends.get(one.name)
                one.begin = one.at(0) if end is None or one.state.is_another_than(end.stream) else end
                await self._find_done(one)
            lag = sum([await one.waiting() for one in streams]) if self._ends else None
            self._reported = about, offset_of(ends, self._options, lag)
        return self._reported[1]

    async def _ranges(self, begun: Mapping[str, Position], ends: Mapping[str, Position]) -> list[SequenceRange]:
        streams = await self._followed(tuple(ends), begun)
        for one in streams:
            if one.name not in begun:
                one.begin = await one.beginning()
            await self._find_done(one)
        shares: Mapping[str, int | None] = dict.fromkeys(ends)
        if len(ends) > 1:
            lengths = {one.name: max(ends[one.name].sequence - one.done, 0) for one in streams}
            shares = divided(self._options.partitions or cores(), lengths)
        each = [await one.ranges(ends[one.name], shares[one.name]) for one in streams]
        return [part for ranges in each for part in ranges]


async def _limit(streams: list[FollowedStream], rows: int) -> None:
    """Lower the last sequences of a batch so that it has at most `rows` rows."""
    if sum(one.last - one.done for one in streams) <= rows:
        return
    shares = dict.fromkeys([one.name for one in streams], rows)
    if len(streams) > 1:
        shares = divided(rows, {one.name: await one.waiting() for one in streams})
    for one in streams:
        if shares[one.name]:
            await one.limit(shares[one.name])
