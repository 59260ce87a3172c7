"""A range of a stream, read once: as messages, as one piece, or in pieces backwards from the stream's end."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field

import pytest

from nats_bridge.client.connection import Connection, open_connection
from nats_bridge.client.wire import Delivered
from nats_bridge.consuming import stream_range
from nats_bridge.consuming.ack_reply import AckReply
from nats_bridge.consuming.replay import Replay
from nats_bridge.consuming.stream_range import Piece, backwards, first_sequence, messages, read_piece
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Name, SharedServers

LAST = 100


@pytest.fixture
async def connection(newest_version: str, servers: SharedServers) -> AsyncIterator[Connection]:
    connection = await open_connection("default", {"servers": [await servers.url(newest_version)]}, client_name="test")
    yield connection
    await connection.close()


@pytest.fixture
async def peer(newest_version: str, servers: SharedServers, raw_peer: OpenPeer) -> RawPeer:
    return await raw_peer(await servers.url(newest_version))


@pytest.fixture
async def replay(connection: Connection, peer: RawPeer, unique_name: Name) -> Replay:
    """Of a stream with `LAST` messages."""
    name = unique_name("range")
    await peer.create_stream(name=name, subjects=[f"{name}.>"])
    for _ in range(LAST):
        await peer.store(f"{name}.x".encode())
    return Replay(connection.api, name)


@dataclass
class Sequences:
    """Remembers which messages it was given."""

    seen: list[int] = field(default_factory=list)

    def take(self, batch: list[Delivered]) -> None:
        self.seen += [sequence(message) for message in batch]


def sequence(message: Delivered) -> int:
    return AckReply.parse(message[1]).stream_sequence


@pytest.mark.parametrize(("found", "enough"), [(0, 0), (10, 20)])
async def test_pieces_backwards_are_the_whole_range(
    found: int, enough: int, replay: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_range, "FIRST_PIECE", 4)
    first = await first_sequence(replay.api, replay.stream)
    pieces: list[Piece[Sequences]] = []
    async for piece in backwards(replay, first, LAST, Sequences, range(found), enough):
        assert piece.taker.seen == list(range(piece.low, piece.low + piece.count))
        pieces.insert(0, piece)
    assert [number for piece in pieces for number in piece.taker.seen] == list(range(1, LAST + 1))
    if not found:
        assert [piece.count for piece in pieces] == [16, 64, 16, 4]
    else:  # ten were found in four messages: after them, the rest should need no more
        assert [piece.count for piece in pieces][-2:] == [4, 4]


async def test_a_deleted_message_is_not_waited_for(peer: RawPeer, replay: Replay) -> None:
    await peer.api(f"STREAM.MSG.DELETE.{replay.stream}", {"seq": LAST})
    piece = await read_piece(replay, LAST - 2, LAST, Sequences)
    assert (piece.taker.seen, piece.count) == ([LAST - 2, LAST - 1], 2)


@dataclass(frozen=True, slots=True)
class LaggingReplay(Replay):
    """Reads from a replica that has the last message the third time only."""

    asked: list[int] = field(default_factory=list)

    async def between(self, first: int, last: int) -> AsyncGenerator[list[Delivered], None]:
        self.asked.append(last)
        async for batch in Replay.between(self, first, last if len(self.asked) == 3 else last - 1):
            yield batch


async def test_a_replica_that_lags_behind_is_read_again(replay: Replay) -> None:
    lagging = LaggingReplay(replay.api, replay.stream)
    piece = await read_piece(lagging, LAST - 2, LAST, Sequences)
    assert lagging.asked == [LAST] * 3
    assert (piece.taker.seen, piece.count) == ([LAST - 2, LAST - 1, LAST], 3)
    # In the middle of the stream, the last message may be a deleted one.
    lagging = LaggingReplay(replay.api, replay.stream)
    piece = await read_piece(lagging, 1, 3, Sequences, newest=False)
    assert (lagging.asked, piece.taker.seen) == ([3], [1, 2])


async def test_who_stops_reading_messages_leaves_no_consumer(peer: RawPeer, replay: Replay) -> None:
    assert [sequence(message) async for message in messages(replay, 7, 12)] == list(range(7, 13))
    async with contextlib.aclosing(messages(replay, 1, LAST)) as reading:
        assert sequence(await anext(reading)) == 1
    assert (await peer.api(f"STREAM.INFO.{replay.stream}"))["state"]["consumer_count"] == 0
