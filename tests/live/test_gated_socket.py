"""What was written under a gate does not leave the process once the gate holds it back."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from nats_bridge.bridge.client.connection import Link, open_link
from nats_bridge.native_servers import NativeServer
from tests.live.raw_messages import OpenPeer
from tests.live.stopped_process import stands_still
from tests.live.until import LIMIT, until

_SIZE = 256 * 1024
_MESSAGES = 256  # together more than the operating system takes for a server that does not read


class HandGate:
    """A gate that the test opens and shuts."""

    def __init__(self, unsent_for: float | None = None) -> None:
        self.is_open = True
        self.unsent_for = unsent_for

    @property
    def holds_back(self) -> bool:
        return not self.is_open

    async def opened(self) -> None:
        raise AssertionError("nobody waits here")


@asynccontextmanager
async def stopped(server: NativeServer) -> AsyncIterator[None]:
    """The server does not read while the body runs."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        await until(lambda: stands_still(server.pid))
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


@pytest.fixture
def private(native_server: Callable[..., NativeServer]) -> Iterator[NativeServer]:
    with native_server("2.15.1") as server:
        yield server


async def _link(server: NativeServer) -> tuple[Link, asyncio.Event, asyncio.Event]:
    link = await open_link("default", {"servers": [server.url]}, client_name="test")
    lost, back = asyncio.Event(), asyncio.Event()
    link.on_disconnect(lost.set)
    link.on_reconnect(back.set)
    return link, lost, back


def _write(link: Link, gate: HandGate) -> None:
    for number in range(_MESSAGES):
        payload = b"%d " % number + b"x" * _SIZE
        link.client.write_raw(b"PUB gated %d\r\n%b\r\n" % (len(payload), payload), gate)


@pytest.mark.unstoppable
async def test_what_is_unsent_goes_with_the_connection(private: NativeServer, raw_peer: OpenPeer) -> None:
    peer = await raw_peer(private.url)
    seen = await peer.collect("gated")
    link, lost, back = await _link(private)
    gate = HandGate()
    async with stopped(private):
        _write(link, gate)
        assert link.client.unsent_bytes > 0
        gate.is_open = False  # as after a pause: no other code of ours has run since
    async with asyncio.timeout(LIMIT):
        await lost.wait()
        await back.wait()
    # What is written under a gate that is open goes its way on the new connection.
    link.client.write_raw(b"PUB gated 3\r\nend\r\n", HandGate())
    await until(lambda: any(message[3] == b"end" for message in seen.messages))
    # The server may still be reading what came by the old connection.
    numbers = [int(message[3].split(b" ")[0]) for message in seen.messages if message[3] != b"end"]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) < _MESSAGES
    await link.close()


async def test_a_gate_that_is_shut_with_nothing_unsent_leaves_the_connection_alone(
    private: NativeServer, raw_peer: OpenPeer
) -> None:
    peer = await raw_peer(private.url)
    seen = await peer.collect("gated")
    link, lost, _ = await _link(private)
    gate = HandGate()
    _write(link, gate)
    async with asyncio.timeout(LIMIT):
        await link.flush()
    gate.is_open = False
    async with asyncio.timeout(LIMIT):
        assert await link.flush()
    assert not lost.is_set()
    await seen.count(_MESSAGES)
    await link.close()


@pytest.mark.skipif(sys.platform != "linux", reason="no other system can be asked to (docs/replicas.md)")
@pytest.mark.unstoppable
async def test_the_operating_system_gives_up_what_the_other_side_does_not_take(private: NativeServer) -> None:
    link, lost, _ = await _link(private)
    async with stopped(private):
        _write(link, HandGate(unsent_for=0.2))
        async with asyncio.timeout(LIMIT):
            await lost.wait()
    await link.close()
