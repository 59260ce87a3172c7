"""Messages without ids, written into a stream: only reading what it holds keeps them from being stored twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pyarrow as pa
import pytest

from nats_bridge.client.connection import Connection
from nats_bridge.client.pub_ack import PubAck
from nats_bridge.consuming.replay import Replay
from nats_bridge.kinds.copying.counters import CopyCounters
from nats_bridge.kinds.copying.target import Operation
from nats_bridge.settings import Connection as ConnectionSettings
from nats_bridge_spark.connections import connected
from nats_bridge_spark.errors import DataLostError
from nats_bridge_spark.rounds import Rounds, Standing
from nats_bridge_spark.row_bundle import RowBundle
from tests.live.cut_wire import cut_wire
from tests.live.raw_messages import RawPeer
from tests.live.shared_servers import Name
from tests.live.stored_messages import stored_messages


class Numbers:
    """Has numbers, and looks which of them the stream holds (see `Sender`)."""

    def __init__(self, connection: Connection, stream: str) -> None:
        self.connection = connection
        self.stream = stream
        self.there: set[int] = set()

    async def look(self, standing: Standing, in_flight: Sequence[RowBundle]) -> None:
        async for batch in Replay(self.connection.api, self.stream).between(1, standing.last):
            self.there |= {int(payload) for _, _, _, payload in batch}

    def left(self, messages: RowBundle) -> RowBundle:
        return messages.kept([at for at, name in enumerate(messages.names) if name not in self.there])

    async def refused(self, operation: Operation, pub_ack: PubAck) -> None:
        raise AssertionError(pub_ack)

    def bundle(self, first: int, last: int) -> RowBundle:
        """First to last, without the last one."""
        numbers = range(first, last)
        columns = zip(*[(self.stream.encode(), b"NATS/1.0\r\n\r\n", b"%d" % number) for number in numbers], strict=True)
        return RowBundle(numbers, *(pa.array(column, pa.binary()) for column in columns))


@asynccontextmanager
async def rounds_on(url: str, stream: str) -> AsyncIterator[tuple[Rounds, Numbers]]:
    async with connected(ConnectionSettings(servers=(url,))) as connection:
        numbers = Numbers(connection, stream)
        rounds = Rounds(stream, connection, numbers, CopyCounters(), patience=60.0)
        try:
            await rounds.open(stream.encode())
            yield rounds, numbers
        finally:
            await rounds.close()


async def ended(rounds: Rounds, messages: RowBundle) -> None:
    """The last messages, and the end."""
    await rounds.send(messages)
    await rounds.settled()


@pytest.mark.parametrize("version", ["2.9.10", "2.10.27", "2.15.3"])
async def test_connections_that_break_lose_and_double_nothing(url: str, peer: RawPeer, unique_name: Name) -> None:
    stream = unique_name("ROUNDS")
    await peer.create_stream(name=stream, subjects=[stream])
    async with cut_wire(url) as wire, rounds_on(wire.url, stream) as (rounds, numbers):
        for first in range(1, 30_001, 10_000):
            await rounds.send(numbers.bundle(first, first + 10_000))
            wire.cut()
        await rounds.settled()
        assert rounds.interruptions > 0
    stored = [int(message.payload) for message in await stored_messages(peer, stream, 30_000)]
    assert sorted(stored) == list(range(1, 30_001))


async def test_a_stream_that_was_recreated_lacks_what_the_old_one_had_confirmed(
    url: str, peer: RawPeer, unique_name: Name
) -> None:
    stream = unique_name("ROUNDS")
    await peer.create_stream(name=stream, subjects=[stream])
    async with cut_wire(url) as wire, rounds_on(wire.url, stream) as (rounds, numbers):
        await rounds.send(numbers.bundle(1, 100))
        await rounds.settled()
        await peer.recreate_stream(stream)
        wire.cut()
        with pytest.raises(DataLostError, match=f"stream '{stream}' was recreated while it was written to"):
            await ended(rounds, numbers.bundle(100, 10_000))
