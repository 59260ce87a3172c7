"""Divides a batch read of a stream into ranges of sequences with similar numbers of messages.

The problem: Spark's tasks read ranges of sequences, and the slowest task decides how long the query takes. After
deletes, or with a filter, ranges of equal length can contain very different numbers of messages.

The idea: `SequenceCounts` has the number of messages up to some sequences, and `cut` uses it to place each end.

* Without a filter and deleted messages, ranges of equal length have as many messages. No request is needed.
* Otherwise a short-lived consumer that begins after a sequence reports how many messages follow it. That is one request
  for each sequence. An end is searched by interpolation between the two nearest known sequences, until the count is
  within 2 % of a range's share. Every answer is kept, so later ends begin closer.

Example: sequences 1 to 1,000, a filter that 400 messages pass, four ranges. The first end should have 100 messages
up to it, give or take 2.

```text
known: up to 0 there are 0, up to 1,000 there are 400     guess 0 + 1,000 * 100/400 = 250   the server: 130
known: 0: 0, 250: 130, 1,000: 400                         guess 0 + 250 * 100/130 = 192     the server: 101, near enough
range 1: 1 to 192; the search for the next end, with 200 messages up to it, begins between 250 and 1,000
```

Invariants:

* The ranges follow each other without a gap and without an overlap: a wrong count makes them unequal, and
  loses nothing.
* Every search ends: a guess is strictly between its neighbours, at least a tenth of their distance from both.
"""

import os
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Self

from pyspark.sql.datasource import InputPartition

from nats_bridge.client.connection import Connection
from nats_bridge.client.stream_identity import KnownStream
from nats_bridge.consuming.replay import Replay
from nats_bridge.errors import ApiError
from nats_bridge_spark.connections import connected_by_options
from nats_bridge_spark.errors import OptionError, PipelineError
from nats_bridge_spark.source.read_options import ReadOptions
from nats_bridge_spark.source.stream_state import StreamState, states_of
from nats_transforms.dialect import server_dialect

CORES: Final = "NATS_BRIDGE_SPARK_CORES"
"""The environment variable in which `pyspark_jetstream.register` passes Spark's default parallelism."""


def cores() -> int:
    """Return Spark's configured default parallelism, or else this machine's cores, because planning has no session."""
    reported = os.environ.get(CORES, "")
    return int(reported) if reported.isdigit() and int(reported) else os.cpu_count() or 1


def divided(number: int, waiting: Mapping[str, int]) -> dict[str, int]:
    """Divide a number among streams.

    Returns:
        Never more than the stream could use, but at least 1 for each stream that could use some, so that none waits for
        long. The sum is larger than the number only if there are more such streams.
    """
    total = sum(waiting.values())
    if total <= number:
        return dict(waiting)
    using = {name: count for name, count in waiting.items() if count}
    spare, rest = max(number - len(using), 0), max(total - len(using), 1)
    shares = dict.fromkeys(waiting, 0) | {name: 1 + spare * (count - 1) // rest for name, count in using.items()}
    # The remainder of rounding goes to the streams that lost the most by it.
    by_loss = sorted(using, key=lambda name: spare * (using[name] - 1) % rest, reverse=True)
    for name in by_loss[: max(number - sum(shares.values()), 0)]:
        shares[name] += 1
    return shares


@dataclass(frozen=True)
class SequenceRange(InputPartition):
    """Messages with first <= sequence <= last of one stream."""

    stream: str
    known: KnownStream
    first: int
    last: int


_NOT_AMONG_THE_STREAMS: Final = 10093
"""The error code of servers before 2.10 for a consumer's filter outside the stream's subjects."""

_NEAR: Final = 0.02
"""The tolerated error of a range's share, as a part of it. More exact ranges cost more requests than they save time."""


async def planned(options: ReadOptions) -> list[SequenceRange]:
    """Connect, and plan a batch read: the ranges of each stream, one stream after the other.

    Raises:
        OptionError: consumers decide which messages a stream keeps, or the server does not support the read.
        UnreachableError: no server.
        PipelineError: no such stream.
    """
    async with connected_by_options(options.connection) as connection:
        check_filters(connection, options)
        states = await states_of(connection, options.streams or (options.stream,), set())
        if not states:
            raise PipelineError(
                f"option streams: no stream that can be read has a name like {', '.join(options.streams)}"
            )
        shares: Mapping[str, int | None] = {options.stream: None}
        if options.streams:
            shares = divided(options.partitions or cores(), {state.name: state.messages for state in states})
        ranges: list[SequenceRange] = []
        for state in states:
            one = options.of_stream(state.name)
            first, last = await _bounds(connection, one, state)
            if first > last or not state.messages:
                continue
            try:
                ranges += await cut(connection, one, state, first, last, share=shares[state.name])
            except ApiError as error:
                if error.err_code != _NOT_AMONG_THE_STREAMS:
                    raise
                raise OptionError(
                    f"option subjects: server {connection.server_version} takes only filters that lie within the"
                    f" stream's subjects, and not {', '.join(options.subjects)}"
                ) from None
        return ranges


async def cut(
    connection: Connection,
    options: ReadOptions,
    state: StreamState,
    first: int,
    last: int,
    *,
    least: int = 1,
    share: int | None = None,
) -> list[SequenceRange]:
    """Ranges from `first` to `last` with similar numbers of messages.

    Args:
        last: the last sequence, not before the first.
        least: the minimum number of messages in a range, unless the options set the number of ranges.
        share: the number of ranges; None for the value of the options or the number of cores.
    """
    held = await SequenceCounts.of(connection, options, state, first, last)
    count = share or options.partitions or cores()
    if not options.partitions:
        count = min(count, -(-held.total // least))
    # A replica may count too few messages. If it counts none, a task looks.
    count = max(1, min(count, held.total))
    near = max(1, int(held.total // count * _NEAR))
    ends = [await held.end_of(held.total * number // count, near) for number in range(1, count)]
    ends = sorted({*ends, last})
    starts = [first, *(end + 1 for end in ends[:-1])]
    return [SequenceRange(state.name, state.known, start, end) for start, end in zip(starts, ends, strict=True)]


def check_filters(connection: Connection, options: ReadOptions) -> None:
    """Refuse several filters if the server's consumers only support one, with an `OptionError`."""
    server = server_dialect(connection.server_version)
    if len(options.subjects) > 1 and not server.consumers_take_several_filters:
        raise OptionError(
            f"option subjects: servers take several filters from 2.10 on, and this is {connection.server_version};"
            " say one, or read all and filter the subject column"
        )


@dataclass(slots=True)
class SequenceCounts:
    """The number of messages of a read up to a sequence.

    Attributes:
        upto: known numbers: messages from the first up to a sequence.
        ask: requests such a number from the server; None if every sequence has a message.
    """

    first: int
    last: int
    total: int
    upto: dict[int, int]
    ask: Callable[[int], Awaitable[int]] | None

    @classmethod
    async def of(cls, connection: Connection, options: ReadOptions, state: StreamState, first: int, last: int) -> Self:
        """Count from the first sequence to the last."""
        if state.deleted == () and not options.subjects:
            return cls(first, last, last - first + 1, {}, None)
        after = Replay(connection.api, options.stream, options.subjects).after
        behind_all, behind_none = await after(first - 1), await after(last)
        total = max(0, behind_all - behind_none)

        async def ask(sequence: int) -> int:
            return behind_all - await after(sequence)

        return cls(first, last, total, {first - 1: 0, last: total}, ask)

    async def end_of_at_most(self, rows: int) -> int:
        """Return a sequence up to which there are at most `rows` messages, and hardly fewer."""
        if rows >= self.total:
            return self.last
        near = 0 if self.ask is None else int(rows * _NEAR)
        return await self.end_of(rows - near, near)

    async def end_of(self, wanted: int, near: int) -> int:
        """Return a sequence up to which there are `wanted` messages, or up to `near` more or fewer."""
        if self.ask is None:
            return self.first + wanted - 1
        while True:
            known = sorted(self.upto)
            at = bisect_left(known, wanted, key=self.upto.__getitem__)
            high, low = known[at], known[max(0, at - 1)]
            for one in (low, high):
                if abs(self.upto[one] - wanted) <= near and one >= self.first:
                    return one
            if high - low <= 1:
                return max(low, self.first)
            # Assume that messages are spread evenly, but never so close to an end that the steps get tiny.
            spread = (wanted - self.upto[low]) / (self.upto[high] - self.upto[low])
            guess = low + round((high - low) * min(max(spread, 0.1), 0.9))
            guess = min(max(guess, low + 1), high - 1)
            self.upto[guess] = await self.ask(guess)


async def _bounds(connection: Connection, options: ReadOptions, state: StreamState) -> tuple[int, int]:
    first, last = max(state.first, options.start_sequence or 1), state.last
    if options.end_sequence is not None:
        last = min(last, options.end_sequence)
    # A replica that lags behind may answer with the last time, so a second is added.
    newest = datetime.fromisoformat(state.last_time) + timedelta(seconds=1)
    before = Replay(connection.api, options.stream).before
    if options.start_time:
        first = max(first, await before(options.start_time) + 1)
    if options.end_time and datetime.fromisoformat(options.end_time) <= newest:
        last = min(last, await before(options.end_time))
    return first, last
