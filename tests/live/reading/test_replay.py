"""Reading a range of a stream again: it is read whole, or broken off with a reason; it never waits for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from nats_bridge.client.connection import Connection, open_connection
from nats_bridge.client.wire import BatchSubscription, Delivered
from nats_bridge.consuming.ack_reply import AckReply
from nats_bridge.consuming.replay import Replay
from nats_bridge.errors import ApiError
from tests.live.cut_wire import CutWire, cut_wire
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.until import LIMIT

OnBatch = Callable[[list[Delivered]], None]
OnControl = Callable[[bytes, bytes], None]

_MESSAGES = 3000
"""Of a kilobyte each: a server sends two megabytes before it wants to know that they have arrived."""
_ARRIVE = 100


@pytest.fixture
async def wire(twin_version: str, servers: SharedServers) -> AsyncIterator[CutWire]:
    async with cut_wire(await servers.url(twin_version)) as wire:
        yield wire


@pytest.fixture
async def connection(wire: CutWire) -> AsyncIterator[Connection]:
    connection = await open_connection("default", {"servers": [wire.url]}, client_name="test")
    yield connection
    await connection.close()


@pytest.fixture
async def stream(twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer) -> str:
    """One of which a server sends less than all before it wants an answer to flow control."""
    peer = await raw_peer(await servers.url(twin_version))
    name = unique_name("again")
    await peer.create_stream(name=name, subjects=[f"{name}.>"])
    for _ in range(_MESSAGES - 1):
        peer.publish(f"{name}.x".encode(), b"x" * 1000)
    await peer.store(f"{name}.x".encode())
    return name


async def test_deliveries_that_went_with_the_connection_break_it(
    wire: CutWire, connection: Connection, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The consumer outlives the connection and may have nothing left to send: its heartbeats show the loss."""
    subscribe, first_connection = connection.client.subscribe_batches, wire.connections
    begun, lost = asyncio.Event(), asyncio.Event()

    async def losing(subject: str, on_batch: OnBatch, on_control: OnControl, **_: None) -> BatchSubscription:
        """Lose what follows the first messages; a server may send it before it says that it made the consumer."""

        def on_less(batch: list[Delivered]) -> None:
            kept = batch if wire.connections > first_connection else [m for m in batch if _number(m) <= _ARRIVE]
            if len(kept) < len(batch):
                lost.set()
            if kept:
                on_batch(kept)

        def on_less_control(reply: bytes, block: bytes) -> None:
            if wire.connections > first_connection or not lost.is_set():
                on_control(reply, block)

        return await subscribe(subject, on_less, on_less_control)

    async def read() -> None:
        async for _ in Replay(connection.api, stream).between(1, _MESSAGES):
            begun.set()

    monkeypatch.setattr(connection.client, "subscribe_batches", losing)
    reading = asyncio.create_task(read())
    async with asyncio.timeout(LIMIT):
        await begun.wait()
        await lost.wait()
        wire.cut()
        with pytest.raises(ApiError, match=r"(of|from) a replay") as caught:
            await reading
    assert caught.value.retriable


async def test_an_answer_to_flow_control_that_was_lost_is_given_again(
    connection: Connection, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that breaks can take it with it; the consumer then says that it waits, and must not seem done."""
    lost = _losing_answers(connection, monkeypatch, most=1)
    async with asyncio.timeout(LIMIT):
        messages = sum([len(batch) async for batch in Replay(connection.api, stream).between(1, _MESSAGES)])
    assert (messages, len(lost)) == (_MESSAGES, 1)


async def test_answers_to_flow_control_that_never_arrive_break_it(
    connection: Connection, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _losing_answers(connection, monkeypatch, most=_MESSAGES)
    async with asyncio.timeout(LIMIT):
        with pytest.raises(ApiError, match="does not receive flow control answers") as caught:
            async for _ in Replay(connection.api, stream).between(1, _MESSAGES):
                pass
    assert caught.value.retriable


def _losing_answers(connection: Connection, monkeypatch: pytest.MonkeyPatch, most: int) -> list[bytes]:
    """Let no more than so many answers to flow control get lost; which did."""
    write, lost = connection.client.write_raw, list[bytes]()

    def losing(data: bytes) -> None:
        if data.startswith(b"PUB $JS.FC.") and len(lost) < most:
            lost.append(data)
        else:
            write(data)

    monkeypatch.setattr(connection.client, "write_raw", losing)
    return lost


def _number(message: Delivered) -> int:
    return AckReply.parse(message[1]).consumer_sequence


async def test_a_delivery_that_is_missing_among_others_breaks_it(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = await servers.url("2.15.3")
    peer = await raw_peer(url)
    stream = unique_name("among")
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"])
    for number in range(1, 6):
        await peer.store(f"{stream}.x".encode(), b"%d" % number)
    connection = await open_connection("default", {"servers": [url]}, client_name="test")
    subscribe = connection.client.subscribe_batches

    async def losing(subject: str, on_batch: OnBatch, on_control: OnControl, **_: None) -> BatchSubscription:
        def on_less(batch: list[Delivered]) -> None:
            if kept := [message for message in batch if message[3] != b"3"]:
                on_batch(kept)

        return await subscribe(subject, on_less, on_control)

    monkeypatch.setattr(connection.client, "subscribe_batches", losing)
    with pytest.raises(ApiError, match="deliveries of a replay were lost") as caught:
        async for _ in Replay(connection.api, stream).between(1, 5):
            pass
    assert caught.value.retriable
    await connection.close()
