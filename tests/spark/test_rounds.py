"""Messages without ids, written into a stream: only reading what it holds keeps them from being stored twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from nats_bridge.client.connection import Connection
from nats_bridge.client.pub_ack import PubAck
from nats_bridge.consuming.replay import Replay
from nats_bridge.kinds.copying.counters import CopyCounters
from nats_bridge.kinds.copying.writing.encoder import Operation
from nats_bridge.settings import Connection as ConnectionSettings
from nats_bridge_spark.connections import connected
from nats_bridge_spark.errors import DataLostError
from nats_bridge_spark.rounds import Rounds, Standing, WriteTarget
from tests.live.cut_wire import cut_wire
from tests.live.raw_messages import RawPeer
from tests.live.stored_messages import stored_messages


class Numbers:
    """Has numbers, and looks which of them the stream holds (see `Sender`)."""

    def __init__(self, connection: Connection, stream: str) -> None:
        self.connection = connection
        self.stream = stream
        self.there: set[int] = set()

    async def look(self, standing: Standing, in_flight: Sequence[list[Operation]]) -> None:
        async for batch in Replay(self.connection.api, self.stream).between(1, standing.last):
            self.there |= {int(payload) for _, _, _, payload in batch}

    def left(self, messages: list[Operation]) -> list[Operation]:
        return [operation for operation in messages if int(operation[0]) not in self.there]

    async def refused(self, operation: Operation, pub_ack: PubAck) -> None:
        raise AssertionError(pub_ack)

    def operations(self, first: int, last: int) -> list[Operation]:
        """First to last, without the last one."""
        made = [(b"%d" % number, self.stream.encode()) for number in range(first, last)]
        return [
            (data, b"HPUB %b 12 %d\r\nNATS/1.0\r\n\r\n%b\r\n" % (subject, 12 + len(data), data))
            for data, subject in made
        ]


@asynccontextmanager
async def rounds_on(url: str, stream: str) -> AsyncIterator[tuple[Rounds[list[Operation]], Numbers]]:
    async with connected(ConnectionSettings(servers=(url,))) as connection:
        numbers = Numbers(connection, stream)
        place = WriteTarget.of(stream, "backfill", "since the job began", rule="rule")
        rounds: Rounds[list[Operation]] = Rounds(place, connection, numbers, CopyCounters(), patience=60.0)
        try:
            await rounds.open(stream.encode())
            yield rounds, numbers
        finally:
            await rounds.close()


async def ended(rounds: Rounds[list[Operation]], operations: list[Operation]) -> None:
    """The last messages, and the end."""
    await rounds.send(operations)
    await rounds.settled()


@pytest.mark.parametrize("version", ["2.9.10", "2.10.27", "2.15.3"])
async def test_connections_that_break_lose_and_double_nothing(
    url: str, peer: RawPeer, unique_name: Callable[[str], str]
) -> None:
    stream = unique_name("ROUNDS")
    await peer.create_stream(name=stream, subjects=[stream])
    async with cut_wire(url) as wire, rounds_on(wire.url, stream) as (rounds, numbers):
        for first in range(1, 30_001, 10_000):
            await rounds.send(numbers.operations(first, first + 10_000))
            wire.cut()
        await rounds.settled()
        assert rounds.interruptions > 0
    stored = [int(message.payload) for message in await stored_messages(peer, stream, 30_000)]
    assert sorted(stored) == list(range(1, 30_001))


async def test_a_stream_that_was_recreated_lacks_what_the_old_one_had_confirmed(
    url: str, peer: RawPeer, unique_name: Callable[[str], str]
) -> None:
    stream = unique_name("ROUNDS")
    await peer.create_stream(name=stream, subjects=[stream])
    async with cut_wire(url) as wire, rounds_on(wire.url, stream) as (rounds, numbers):
        await rounds.send(numbers.operations(1, 100))
        await rounds.settled()
        await peer.recreate_stream(stream)
        wire.cut()
        with pytest.raises(DataLostError, match=f"stream '{stream}' was recreated since the job began: run the"):
            await ended(rounds, numbers.operations(100, 10_000))
