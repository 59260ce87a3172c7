"""One stream of a streaming read at one moment, and the positions of the read in its streams, as Spark stores them.

With the option `stream` an offset is `{"created": …, "messages": …, "sequence": …}`; with `streams` it is `{"streams":
{"ORDERS": {"created": …, …}, …}}`. The reported progress of a query also has `lag`. `messages` are sequence and time
(nanoseconds since 1970) of a message that identifies the stream if its creation time changes. Offsets of earlier
versions have none. `startTime` is included until a message of that time or later is read.
"""

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
from nats_bridge_spark.source.stream_state import StreamState, holds_any


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
    """Return the positions of an offset by stream; refuse one of a read with the other option with an `OptionError`."""
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


@dataclass(slots=True)
class FollowedStream:
    """A stream at the time when its server answered, and the next batch of it.

    Attributes:
        begin: the position before the batch.
        done: the sequence up to which nothing is left to read.
        last: the last sequence of the batch.
    """

    connection: Connection
    options: ReadOptions
    state: StreamState
    begin: Position
    done: int = 0
    last: int = 0

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
        done = await self.done_of(position)
        return replace(position, sequence=done) if self._ended_before(self.options.start_time) else self.at(done)

    async def done_of(self, position: Position) -> int:
        """Return the sequence up to which nothing is left to read, of a position or of messages before its time."""
        time = position.start_time
        if time is None:
            return position.sequence
        if self._ended_before(time):  # a server treats it as the time of the next message, even if that is stored later
            return max(position.sequence, self.state.last)
        return max(position.sequence, await Replay(self.connection.api, self.name).before(time))

    def _ended_before(self, time: str) -> bool:
        return datetime.fromisoformat(self.state.last_time) < datetime.fromisoformat(time)

    async def holds_any(self) -> bool:
        """Return whether the stream's leader has messages of the batch to read."""
        if self.last <= self.done or self.last < self.state.first or not self.state.messages:
            return False
        subjects = self.options.subjects
        if not subjects and self.state.deleted == ():
            return True  # the last message exists
        # If the user may not ask, a task finds out.
        return await holds_any(self.connection, self.name, subjects, self.done + 1, self.last, unknown=True)

    def check(self, *ends: Position) -> None:
        """Raise a `DataLostError` if the begin or an end is of another stream, or the next messages were removed."""
        state = self.state
        for position in (self.begin, *ends):
            if position.sequence and state.is_another_than(position.stream):
                raise DataLostError(
                    f"stream '{state.name}': was recreated at {state.created}; the checkpoint is of the one of"
                    f" {position.stream.created}: begin with a new checkpoint location"
                )
        if self.options.fail_on_data_loss:
            remedy = "set failOnDataLoss=false to continue without them, or begin with a new checkpoint location"
            state.require_held(self.done + 1, state.first, remedy)

    @property
    def end(self) -> Position:
        """The end of the batch: its begin, if there is nothing to read.

        Messages that were left out and removed are passed, because after a restart they could be taken for lost.
        """
        if self.last > self.done:
            return self.at(self.last)
        if self.state.first <= self.begin.sequence + 1 or self.done == self.begin.sequence:
            return self.begin
        return replace(self.at(self.done), start_time=self.begin.start_time)

    async def waiting(self) -> int:
        """Return the number of messages that are left to read."""
        if self.done >= self.state.last:
            return 0
        return (await self._held(self.state.last)).total

    async def limit(self, rows: int) -> None:
        """Lower the last sequence of the batch so that it has at most `rows` rows."""
        if self.last - self.done > rows:
            self.last = min(await (await self._held(self.last)).end_of_at_most(rows), self.last)

    async def ranges(self, end: Position, share: int | None) -> list[SequenceRange]:
        """Return the ranges of a batch up to a position, after a `check`."""
        self.check(end)
        first, last = max(self.done + 1, self.state.first), end.sequence
        if first > last:
            return []
        return await cut(self.connection, self.options, self.state, first, last, least=_LEAST, share=share)

    async def _held(self, last: int) -> SequenceCounts:
        first = max(self.done + 1, self.state.first)
        return await SequenceCounts.of(self.connection, self.options, self.state, first, max(last, first - 1))
