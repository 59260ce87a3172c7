"""Reading a range of a stream again: it is read whole, or broken off with a reason; it never waits for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from bridge.connection import Link, open_link
from bridge.errors import ApiError
from bridge.replay import Replay
from bridge.wire import BatchSubscription, Delivered
from conformance.servers import SharedServers
from tests.live.cut_wire import CutWire, cut_wire
from tests.live.raw_messages import OpenPeer
from tests.live.until import LIMIT, until

OnBatch = Callable[[list[Delivered]], None]
OnControl = Callable[[bytes, bytes], None]

_MESSAGES = 3000
"""Ten times what one read of the wire can hold."""


@pytest.fixture
async def wire(twin_version: str, servers: SharedServers) -> AsyncIterator[CutWire]:
    async with cut_wire(await servers.url(twin_version)) as wire:
        yield wire


@pytest.fixture
async def link(wire: CutWire) -> AsyncIterator[Link]:
    link = await open_link("default", {"servers": [wire.url]}, client_name="test")
    yield link
    await link.close()


async def test_deliveries_that_went_with_the_connection_break_it(
    wire: CutWire,
    link: Link,
    twin_version: str,
    servers: SharedServers,
    unique_name: Callable[[str], str],
    raw_peer: OpenPeer,
) -> None:
    """The consumer outlives the connection and has nothing left to send: only its signs of life tell of the loss."""
    peer = await raw_peer(await servers.url(twin_version))
    stream = unique_name("replay")
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"])
    for _ in range(_MESSAGES - 1):
        peer.publish(f"{stream}.x".encode(), b"x" * 1000)
    await peer.store(f"{stream}.x".encode())

    async def delivered() -> int:
        names = (await peer.api(f"CONSUMER.NAMES.{stream}"))["consumers"] or []
        counts = [(await peer.api(f"CONSUMER.INFO.{stream}.{name}"))["delivered"]["consumer_seq"] for name in names]
        return max(counts, default=0)

    async def sent_more_than_arrives() -> bool:
        return await delivered() > _MESSAGES // 10

    async def read() -> int:
        return sum([len(batch) async for batch in Replay(link.api, stream).between(1, _MESSAGES)])

    connections = wire.connections
    wire.fall_silent_after(b"num_pending")  # the answer to the consumer's creation still comes through
    reading = asyncio.create_task(read())
    await until(sent_more_than_arrives)
    wire.cut()
    wire.speak_again()
    await until(lambda: wire.connections > connections)
    async with asyncio.timeout(LIMIT):
        with pytest.raises(ApiError, match="replay") as caught:
            await reading
    assert caught.value.retriable


async def test_a_delivery_that_is_missing_among_others_breaks_it(
    servers: SharedServers, unique_name: Callable[[str], str], raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = await servers.url("2.15.1")
    peer = await raw_peer(url)
    stream = unique_name("among")
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"])
    for number in range(1, 6):
        await peer.store(f"{stream}.x".encode(), b"%d" % number)
    link = await open_link("default", {"servers": [url]}, client_name="test")
    subscribe = link.client.subscribe_batches

    async def losing(subject: str, on_batch: OnBatch, on_control: OnControl) -> BatchSubscription:
        def on_less(batch: list[Delivered]) -> None:
            if kept := [message for message in batch if message[3] != b"3"]:
                on_batch(kept)

        return await subscribe(subject, on_less, on_control)

    monkeypatch.setattr(link.client, "subscribe_batches", losing)
    with pytest.raises(ApiError, match="deliveries of a replay were lost") as caught:
        async for _ in Replay(link.api, stream).between(1, 5):
            pass
    assert caught.value.retriable
    await link.close()
