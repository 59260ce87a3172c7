"""One stream of a streaming read at one moment, and the positions of the read in its streams, as Spark stores them.

With the option `stream` an offset is `{"created": …, "messages": …, "sequence": …}`; with `streams` it is `{"streams":
{"ORDERS": {"created": …, …}, …}}`. The reported progress of a query also has `lag`. `messages` are sequence and time
(nanoseconds since 1970) of a message that identifies the stream if its creation time changes. Offsets of earlier
versions have none. `startTime` is included until a message of that time or later is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from nats_bridge.client.connection import Connection
from nats_bridge.client.stream_identity import KnownStream, MessageStamp
from nats_bridge.consuming.replay import Replay
from nats_bridge_spark.errors import DataLostError, OptionError
from nats_bridge_spark.source.planning import SequenceCounts, SequenceRange, cut
from nats_bridge_spark.source.read_options import ReadOptions
from nats_bridge_spark.source.stream_state import StreamState, holds_any, state_of


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a read in one stream.

    Attributes:
        sequence: the last sequence that is done.
        start_time: RFC 3339; later sequences that were stored before it are not read. None without one.
    """

    stream: KnownStream
    sequence: int
    start_time: str | None = None


def offset_of(positions: Mapping[str, Position], options: ReadOptions, lag: int | None = None) -> dict[str, Any]:
    """Return the offset of these positions by stream, with the lag in messages if known."""
    each = {
        name: {"created": at.stream.created, "messages": at.stream.messages, "sequence": at.sequence}
        | ({"startTime": at.start_time} if at.start_time else {})
        for name, at in positions.items()
    }
    offset: dict[str, Any] = each[options.stream] if options.stream else {"streams": each}
    return offset if lag is None else {**offset, "lag": lag}


def positions_of(offset: Mapping[str, Any], options: ReadOptions) -> dict[str, Position]:
    """Return the positions of an offset, by stream.

    Raises:
        OptionError: the offset belongs to a read with the other option.
    """
    if ("streams" in offset) is bool(options.stream):
        now, before = ("stream", "streams") if options.stream else ("streams", "stream")
        raise OptionError(
            f"option {now}: the checkpoint is of a read with {before}; begin with a new checkpoint location"
        )
    each = {options.stream: offset} if options.stream else offset["streams"]
    return {name: Position(_stream(at), int(at["sequence"]), at.get("startTime")) for name, at in each.items()}


def _stream(at: Mapping[str, Any]) -> KnownStream:
    return KnownStream(str(at["created"]), tuple(MessageStamp(*each) for each in at.get("messages", ())))


_LEAST: Final = 10_000
"""Messages in a range: for fewer, a task more costs more than it saves."""


@dataclass(frozen=True, slots=True)
class FollowedStream:
    """A stream at the time when its server answered."""

    connection: Connection
    options: ReadOptions
    state: StreamState

    @classmethod
    async def now(cls, connection: Connection, options: ReadOptions, name: str) -> FollowedStream:
        """Ask for a stream of a read, with the sequences that were deleted in it.

        Raises:
            OptionError: its consumers decide which messages it keeps.
            PipelineError: the stream does not exist.
        """
        state = await state_of(connection, name, listing=True)
        state.require_limits("read")
        return cls(connection, options.of_stream(name), state)

    @property
    def name(self) -> str:
        """The stream's name."""
        return self.state.name

    def at(self, sequence: int) -> Position:
        """Return the position after a sequence."""
        # One message only: the first one goes, and a position should change only if the sequence does.
        known = self.state.known
        return Position(replace(known, messages=known.messages[:1]), sequence)

    async def beginning(self) -> Position:
        """Return the position at which a query without one begins."""
        position = self.at(max(self.state.first, self.options.start_sequence or 1) - 1)
        if not self.options.start_time:
            return position
        position = replace(position, start_time=self.options.start_time)
        done = await self.done(position)
        return replace(position, sequence=done) if self._ended_before(self.options.start_time) else self.at(done)

    async def done(self, position: Position) -> int:
        """Return the sequence up to which nothing is left to read.

        Of the position, or of messages before its start time.
        """
        time = position.start_time
        if time is None:
            return position.sequence
        if self._ended_before(time):  # a server treats it as the time of the next message, even if that is stored later
            return max(position.sequence, self.state.last)
        return max(position.sequence, await Replay(self.connection.api, self.name).before(time))

    def _ended_before(self, time: str) -> bool:
        return datetime.fromisoformat(self.state.last_time) < datetime.fromisoformat(time)

    async def holds_any(self, done: int, last: int) -> bool:
        """Return whether the stream's leader has messages to read after one sequence, up to another."""
        if last <= done or last < self.state.first or not self.state.messages:
            return False
        if not self.options.filters and self.state.deleted == ():
            return True  # the last message exists
        # If the user may not ask, a task finds out.
        return await holds_any(self.connection, self.name, self.options.filters, done + 1, last, unknown=True)

    def check(self, position: Position, done: int, *, whole: bool = True) -> None:
        """Check that it is the stream of a position, and has the next messages.

        Args:
            done: the sequence up to which nothing is left to read.
            whole: whether the next messages must still exist.

        Raises:
            DataLostError: the stream was recreated, or has removed the next messages.
        """
        state = self.state
        if position.sequence and state.is_another_than(position.stream):
            raise DataLostError(
                f"stream '{state.name}': was recreated at {state.created}; the checkpoint is of the one of"
                f" {position.stream.created}: begin with a new checkpoint location"
            )
        if whole and self.options.fail_on_data_loss:
            remedy = "set failOnDataLoss=false to continue without them, or begin with a new checkpoint location"
            state.require_held(done + 1, state.first, remedy)

    def end_of_batch(self, begin: Position, done: int, last: int) -> Position:
        """Return the end of a batch up to a sequence: its begin, if there is nothing to read.

        Messages that were left out and removed are passed, because after a restart they could be taken for lost.
        """
        if last > done:
            return self.at(last)
        if self.state.first <= begin.sequence + 1 or done == begin.sequence:
            return begin
        return replace(self.at(done), start_time=begin.start_time)

    async def waiting(self, done: int) -> int:
        """Return the number of messages after a sequence."""
        if done >= self.state.last:
            return 0
        return (await self._held(done, self.state.last)).total

    async def within(self, done: int, last: int, rows: int) -> int:
        """Return the last sequence, up to `last`, of a batch after `done` with at most `rows` rows."""
        if last - done <= rows:
            return max(last, done)
        held = await self._held(done, last)
        return min(await held.end_of_at_most(rows), last)

    async def ranges(self, begin: Position, done: int, end: Position, share: int | None = None) -> list[SequenceRange]:
        """Return the ranges of a batch.

        Raises:
            DataLostError: the stream was recreated, or has removed the next messages.
        """
        self.check(begin, done)
        self.check(end, end.sequence, whole=False)
        first, last = max(done + 1, self.state.first), end.sequence
        if first > last:
            return []
        return await cut(self.connection, self.options, self.state, first, last, least=_LEAST, share=share)

    async def _held(self, done: int, last: int) -> SequenceCounts:
        first = max(done + 1, self.state.first)
        return await SequenceCounts.of(self.connection, self.options, self.state, first, max(last, first - 1))
