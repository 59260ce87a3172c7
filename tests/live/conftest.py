"""Real servers and connections for the live tests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import count
from typing import Any

import pytest
from nats.aio.client import Client

from nats_bridge.client import connection, waiting
from nats_bridge.client.reconnect_schedule import ReconnectSchedule
from nats_bridge.client.wire import WireClient
from nats_conformance.native_servers import NativeServer, fetch
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import SharedServers
from tests.live.tiers import NEWEST, OLDEST_AND_NEWEST, ONLY
from tests.live.until import LIMIT

Connect = Callable[..., Awaitable[Client]]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of one chosen version (`NATS_BRIDGE_TEST_SERVER=2.16.0`), keep the tests whose result depends on the version."""
    if ONLY:
        left_out = [item for item in items if not _has_version(item)]
        items[:] = [item for item in items if _has_version(item)]
        config.hook.pytest_deselected(items=left_out)


def _has_version(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    return call is not None and ONLY in call.params.values()


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedServers]:
    """One shared server per version and session, started when first asked for.

    ``servers[version]`` is the running NativeServer, ``await servers.url(version)`` its address. Streams and
    subjects on it must be a test's own (``unique_name``). A server that cannot be had fails the test.
    """
    shared = SharedServers(tmp_path_factory.mktemp("servers"), report=print)
    yield shared
    shared.close()


@pytest.fixture(params=OLDEST_AND_NEWEST)
def twin_version(request: pytest.FixtureRequest) -> str:
    """For a test whose result depends on the server's version: each one; the oldest and the newest in `make test`."""
    version: str = request.param
    return version


@pytest.fixture
def newest_version() -> str:
    """For a test of what the bridge does on any server."""
    return NEWEST


@pytest.fixture
def native_server() -> Iterator[Callable[..., NativeServer]]:
    """Make a private server, not yet started: ``async with native_server("2.10.27", config=…) as server``.

    Plain ``with`` and ``.start()`` do as well. Options are NativeServer's. Whatever was started is ended
    after the test.
    """
    made: list[NativeServer] = []

    def make(version: str, **options: Any) -> NativeServer:
        server = NativeServer(binary=fetch(version, report=print), **options)
        made.append(server)
        return server

    yield make
    for server in made:
        server.close()


@pytest.fixture(autouse=True)
def patient_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection is given up because a server is paused or delays its publisher, however slow the machine is."""
    monkeypatch.setattr(connection, "_PING", LIMIT)


@pytest.fixture
def quick_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent consumer is noticed sooner; nothing else changes."""
    monkeypatch.setattr(waiting, "HEARTBEAT", 0.2)


@pytest.fixture
def quick_reconnects(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sidecar connects again sooner; nothing else changes."""
    monkeypatch.setattr(ReconnectSchedule, "wait", lambda _: 0.02)


@pytest.fixture
def unique_name(_name_numbers: Iterator[int]) -> Callable[[str], str]:
    """``unique_name("orders")``: a stream name or subject token that no other test on a shared server has."""
    return lambda stem: f"{stem}_{next(_name_numbers)}"


@pytest.fixture(scope="session")
def _name_numbers() -> Iterator[int]:
    return count(1)


@pytest.fixture
async def raw_peer() -> AsyncIterator[Callable[[str], Awaitable[RawPeer]]]:
    """``await raw_peer(url)``: connections for raw header blocks, closed after the test."""
    opened: list[RawPeer] = []

    async def open_peer(url: str) -> RawPeer:
        peer = await RawPeer.connect(url)
        opened.append(peer)
        return peer

    yield open_peer
    for peer in opened:
        await peer.close()


@pytest.fixture
async def enduring_peer() -> AsyncIterator[OpenPeer]:
    """``await enduring_peer(url)``: the same, with connections and subscriptions that come back after a restart."""
    clients: list[WireClient] = []

    async def open_peer(url: str) -> RawPeer:
        client = WireClient()
        clients.append(client)
        await client.connect(
            url,
            connect_timeout=int(LIMIT),
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.02,  # type: ignore[arg-type]  # any number of seconds works
        )
        peer = RawPeer(client)
        await peer.listen()
        return peer

    yield open_peer
    for client in clients:
        await client.close()


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """``await connect(server_or_url, **options)``: nats-py connections, closed after the test."""
    opened: list[Client] = []

    async def open_connection(server: NativeServer | str, **options: Any) -> Client:
        url = server if isinstance(server, str) else server.url
        # Not nats.connect: a client whose login is refused leaves its socket open and must be closed too.
        connection = Client()
        opened.append(connection)
        await connection.connect(url, **{"connect_timeout": int(LIMIT), **options})
        return connection

    yield open_connection
    for each in opened:
        await _close(each)


async def _close(connection: Client) -> None:
    # nats-py 2.16 loses the socket of a reconnect that close() interrupts, and the warning of it fails
    # whatever test comes next: end the reconnect first. A cancellation may be swallowed, hence the loop.
    reconnect = connection._reconnection_task
    while reconnect is not None and not reconnect.done():
        reconnect.cancel()
        await asyncio.wait({reconnect}, timeout=1)
    with contextlib.suppress(ConnectionError):  # the server ended just now
        await connection.close()
