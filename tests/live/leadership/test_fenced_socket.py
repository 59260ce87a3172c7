"""What was written under a fence does not leave the process once the fence holds it back."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from nats_bridge.client.connection import Connection, open_connection
from nats_conformance.native_servers import NativeServer
from tests.live.processes import stands_still
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Servers
from tests.live.until import LIMIT, until

_SIZE = 256 * 1024
_MESSAGES = 256  # together more than the operating system takes for a server that does not read


class HandFence:
    """A fence that the test opens and shuts."""

    def __init__(self, unsent_for: float | None = None) -> None:
        self.is_open = True
        self.unsent_for = unsent_for

    @property
    def holds_back(self) -> bool:
        return not self.is_open

    async def opened(self) -> None:
        raise AssertionError("no task waits here")


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
def private(native_server: Servers) -> Iterator[NativeServer]:
    with native_server("2.15.3") as server:
        yield server


async def _connection(server: NativeServer) -> tuple[Connection, asyncio.Event, asyncio.Event]:
    connection = await open_connection("default", {"servers": [server.url]}, client_name="test")
    lost, back = asyncio.Event(), asyncio.Event()
    connection.on_disconnect(lost.set)
    connection.on_reconnect(back.set)
    return connection, lost, back


def _write(connection: Connection, fence: HandFence) -> None:
    for number in range(_MESSAGES):
        payload = b"%d " % number + b"x" * _SIZE
        connection.client.write_raw(b"PUB fenced %d\r\n%b\r\n" % (len(payload), payload), fence)


@pytest.mark.unstoppable
async def test_what_is_unsent_goes_with_the_connection(private: NativeServer, raw_peer: OpenPeer) -> None:
    peer = await raw_peer(private.url)
    seen = await peer.collect("fenced")
    connection, lost, back = await _connection(private)
    fence = HandFence()
    async with stopped(private):
        _write(connection, fence)
        assert connection.client.unsent_bytes > 0
        fence.is_open = False  # as after a pause: no other code of ours has run since
    async with asyncio.timeout(LIMIT):
        await lost.wait()
        await back.wait()
    # What is written under a fence that is open goes its way on the new connection.
    connection.client.write_raw(b"PUB fenced 3\r\nend\r\n", HandFence())
    await until(lambda: any(message[3] == b"end" for message in seen.messages))
    # The server may still be reading what came by the old connection.
    numbers = [int(message[3].split(b" ")[0]) for message in seen.messages if message[3] != b"end"]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) < _MESSAGES
    await connection.close()


async def test_a_fence_shut_with_nothing_unsent_leaves_the_connection_alone(
    private: NativeServer, raw_peer: OpenPeer
) -> None:
    peer = await raw_peer(private.url)
    seen = await peer.collect("fenced")
    connection, lost, _ = await _connection(private)
    fence = HandFence()
    _write(connection, fence)
    async with asyncio.timeout(LIMIT):
        await connection.flush()
    fence.is_open = False
    async with asyncio.timeout(LIMIT):
        assert await connection.flush()
    assert not lost.is_set()
    await seen.count(_MESSAGES)
    await connection.close()


@pytest.mark.skipif(sys.platform != "linux", reason="no other system can be asked to (docs/replicas.md)")
@pytest.mark.unstoppable
async def test_the_operating_system_gives_up_what_the_other_side_does_not_take(private: NativeServer) -> None:
    connection, lost, _ = await _connection(private)
    async with stopped(private):
        _write(connection, HandFence(unsent_for=0.2))
        async with asyncio.timeout(LIMIT):
            await lost.wait()
    await connection.close()
