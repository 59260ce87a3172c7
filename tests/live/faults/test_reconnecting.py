"""Connections that are lost: how often they try again, which servers they try, and which causes they report."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
import trustme

from nats_bridge.client import delivery_limit, ended_connections
from nats_bridge.client.connection import Connection, open_connection
from nats_bridge.client.reconnect_schedule import ReconnectSchedule
from nats_bridge.client.server_pool import ServerPool
from nats_bridge.errors import BridgeError, InboxRefusedError, ServerUnreachableError
from nats_bridge.settings.secrets import FromFile, Held
from nats_conformance.native_servers import NativeServer
from nats_conformance.native_servers.native_server import free_port
from tests.live.cut_wire import cut_wire
from tests.live.observing.test_health import FREE, get, status_of
from tests.live.raw_messages import OpenPeer
from tests.live.security.credentials import Files
from tests.live.shared_servers import Servers
from tests.live.sidecar_process import Scene
from tests.live.sidecars import running, settings_for
from tests.live.tiers import by_turns, with_all
from tests.live.until import LIMIT, until

Log = list[MutableMapping[str, Any]]

ATTEMPTS = 200
GONE = 8
NOWHERE = "nats://gone.invalid:4222"


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of every wait before an attempt; none is waited for."""
    made: list[float] = []
    wait = ReconnectSchedule.wait

    def noted(schedule: ReconnectSchedule) -> float:
        made.append(wait(schedule))
        return 0.0

    monkeypatch.setattr(ReconnectSchedule, "wait", noted)
    return made


@pytest.fixture
def log() -> Iterator[Log]:
    with structlog.testing.capture_logs() as entries:
        yield entries


@asynccontextmanager
async def opened(*urls: str, **options: Any) -> AsyncIterator[Connection]:
    connection = await open_connection(
        "default", {"servers": list(urls), "connect_timeout": LIMIT, **options}, client_name="test"
    )
    try:
        yield connection
    finally:
        await connection.close()


def rate_after_ten_seconds(waits: list[float]) -> float:
    """Attempts per second, as if every attempt had failed at once."""
    now, later = 0.0, 0
    for wait in waits:
        now += wait
        later += now > 10
    return later / (now - 10)


async def test_an_outage_sees_few_attempts(newest_version: str, native_server: Servers, waits: list[float]) -> None:
    attempts = 0

    async def closes(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal attempts
        attempts += 1
        writer.transport.abort()

    server = native_server(newest_version)
    await asyncio.to_thread(server.start)
    async with opened(server.url) as connection:
        await asyncio.to_thread(server.stop)
        await until(lambda: not connection.client.is_connected)
        listener = await asyncio.start_server(closes, "127.0.0.1", server.port)
        waits.clear()
        await until(lambda: attempts >= ATTEMPTS)
        assert rate_after_ten_seconds(waits) <= 0.5
        assert len(waits) <= attempts + 2, "no attempt is made without a wait"
        listener.close()
        await listener.wait_closed()
        await asyncio.to_thread(server.start)
        await until(lambda: connection.reconnects == 1)


async def test_refused_credentials_are_tried_less_often(
    twin_version: str, native_server: Servers, waits: list[float], log: Log, tmp_path: Path
) -> None:
    word = tmp_path / "password"
    word.write_text("one", "utf-8")
    server = native_server(twin_version, config="authorization {user: me, password: one}")
    await asyncio.to_thread(server.start)
    async with opened(server.url, user="me", password=FromFile("password_file", word)) as connection:
        await asyncio.to_thread(server.stop)
        server.config = "authorization {user: me, password: two}"
        await asyncio.to_thread(server.start)
        address = server.url.partition("://")[2]
        await until(lambda: any(each.reason for each in connection.failed_attempts if "refused" not in each.reason))
        waits.clear()
        await until(lambda: len(waits) >= ATTEMPTS // 2)
        assert rate_after_ten_seconds(waits) <= 0.15
        (failed,) = connection.failed_attempts
        assert (failed.server, failed.reason) == (address, "nats: 'Authorization Violation'")
        said = next(entry for entry in log if entry["event"] == "connection.rejected")
        assert (said["server"], said["reason"]) == (address, failed.reason)
        word.write_text("two", "utf-8")
        await until(lambda: connection.reconnects == 1)
        assert connection.failed_attempts == []


async def test_servers_that_are_advertised_no_more_are_not_tried(twin_version: str, native_server: Servers) -> None:
    async with stale_addresses(native_server, twin_version) as (server, gone, connection):
        for each in gone:
            await asyncio.to_thread(each.stop)
        await until(lambda: len(connection.client.servers) == 1)
        await asyncio.to_thread(server.restart)
        await until(lambda: connection.reconnects == 1)
        assert connection.client.pool.addresses == (server.url.partition("://")[2],)


@pytest.mark.unstoppable
async def test_servers_that_vanish_do_not_delay_the_one_that_is_there(
    twin_version: str, native_server: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []
    choose = ServerPool.next

    def noted(pool: ServerPool) -> str:
        tried.append(choose(pool))
        return tried[-1]

    monkeypatch.setattr(ServerPool, "next", noted)
    async with stale_addresses(native_server, twin_version) as (server, gone, connection):
        os.kill(server.pid, signal.SIGSTOP)  # it does not notice that the others end
        for each in gone:
            await asyncio.to_thread(each.kill)
        tried.clear()
        await asyncio.to_thread(server.kill)
        await until(lambda: len(tried) >= 10)
        await asyncio.to_thread(server.start)
        await until(lambda: connection.reconnects == 1)
        at = [number for number, address in enumerate(tried) if address == connection.server]
        assert connection.server == server.url.partition("://")[2]
        assert {later - before for before, later in itertools.pairwise(at)} == {2}


@asynccontextmanager
async def stale_addresses(
    native_server: Servers, version: str
) -> AsyncIterator[tuple[NativeServer, list[NativeServer], Connection]]:
    """A server, the others of its cluster, and a connection to the first that knows the addresses of all."""
    routes = free_port()
    server = native_server(version, jetstream=False, config=f"cluster {{name: c, listen: '127.0.0.1:{routes}'}}")
    await asyncio.to_thread(server.start)
    to_it = f"cluster {{name: c, listen: '127.0.0.1:-1', routes: ['nats-route://127.0.0.1:{routes}']}}"
    others = [native_server(version, jetstream=False, config=to_it) for _ in range(GONE)]
    async with opened(server.url) as connection:
        for other in others:
            await asyncio.to_thread(other.start)
        await until(lambda: len(connection.client.servers) == 1 + GONE)
        yield server, others, connection


@pytest.mark.usefixtures("quick_reconnects")
async def test_it_says_why_each_server_is_not_reached(
    twin_version: str, native_server: Servers, raw_peer: OpenPeer, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POD_NAME", "orders-7d9f")
    monkeypatch.setattr(ServerPool, "patience", lambda _: LIMIT)  # or "no answer in time" could be a cause as well
    server = native_server(twin_version, monitor=True, name="n1")
    await asyncio.to_thread(server.start)
    here = await Scene.make(await raw_peer(server.url), "S")
    nothing = f"127.0.0.1:{free_port()}"
    address = server.url.partition("://")[2]
    connection = {"servers": [server.url, NOWHERE, f"nats://{nothing}"], "connect_timeout": LIMIT}
    async with running(settings_for("", here.rule(), connections={"default": connection}, **FREE)) as bridge:
        named = [each["name"] for each in server.monitored("/connz")["connections"] if each.get("name")]
        assert named == ["nats-bridge@orders-7d9f"]
        (shown,) = (await status_of(bridge))["connections"]
        assert (shown["server"], shown["server_name"]) == (address, "n1")
        await asyncio.to_thread(server.stop)
        link = bridge.connections["default"]
        await until(lambda: len(link.failed_attempts) == 3)
        causes = {
            address: "connection refused",
            NOWHERE.partition("://")[2]: "the name is not known",
            nothing: "connection refused",
        }
        assert {each.server: each.reason for each in link.failed_attempts} == causes
        (shown,) = (await status_of(bridge))["connections"]
        assert {each["server"]: each["reason"] for each in shown["failed_attempts"]} == causes
        assert shown["server"] is None
        status, text = await get(bridge, "/readyz?verbose")
        assert status == 503
        for server_name, cause in causes.items():
            assert f"{server_name}: {cause}" in text
        logged = {entry["server"]: entry["reason"] for entry in log if entry["event"] == "connection.unreachable"}
        assert logged == causes
        assert sum(entry["event"] == "connection.unreachable" for entry in log) == 3, "each cause once a minute"
        (lost,) = (entry for entry in log if entry["event"] == "connection.lost")
        assert (lost["server"], lost["reason"]) == (address, "the server closed the connection")
        await asyncio.to_thread(server.start)
        await until(lambda: link.reconnects == 1)
        assert address not in {each.server for each in link.failed_attempts}
        (back,) = (entry for entry in log if entry["event"] == "connection.back")
        assert (back["server"], back["version"]) == (address, twin_version)


@pytest.mark.usefixtures("quick_reconnects")
async def test_a_certificate_that_is_not_trusted_any_more_is_a_cause(
    newest_version: str, native_server: Servers, tmp_path: Path
) -> None:
    files = Files(tmp_path)
    server = native_server(newest_version)
    await asyncio.to_thread(server.start)
    async with opened(server.url) as connection:
        own = files.certificate("server", trustme.CA().issue_cert("127.0.0.1"))
        server.config = f'tls {{cert_file: "{own["cert"]}", key_file: "{own["key"]}"}}'
        await asyncio.to_thread(server.restart)
        await until(lambda: any("certificate verify failed" in each.reason for each in connection.failed_attempts))


async def test_a_start_reaches_the_server_that_is_trusted(
    newest_version: str, native_server: Servers, tmp_path: Path
) -> None:
    own = Files(tmp_path).certificate("server", trustme.CA().issue_cert("127.0.0.1"))
    tls = f'tls {{cert_file: "{own["cert"]}", key_file: "{own["key"]}"}}'
    async with native_server(newest_version, config=tls) as untrusted, native_server(newest_version) as trusted:
        port = f":{untrusted.port}"
        async with opened(f"nats://127.0.0.1{port}", f"nats://localhost{port}", trusted.url) as connection:
            assert connection.server == trusted.url.partition("://")[2]


@pytest.mark.parametrize("version", ["2.10.27", "2.15.3"])  # older servers have no such option
async def test_a_server_that_expects_tls_first_is_recognized(
    version: str, native_server: Servers, tmp_path: Path
) -> None:
    own = Files(tmp_path).certificate("server", trustme.CA().issue_cert("127.0.0.1"))
    tls = f'tls {{cert_file: "{own["cert"]}", key_file: "{own["key"]}", handshake_first: true, timeout: 0.1}}'
    async with native_server(version, config=tls) as server:
        with pytest.raises(ServerUnreachableError, match="handshake_first"):
            async with opened(server.url, connect_timeout=2):
                pass


NO_INBOX = 'permissions: {subscribe: {deny: "_INBOX.>"}}'


def reload(server: NativeServer) -> None:
    """Let a server read its configuration again."""
    (server.directory / "server.conf").write_text(f'server_name: "{server.name}"\n{server.config}', "utf-8")
    os.kill(server.pid, signal.SIGHUP)


@pytest.mark.parametrize(
    ("version", "change"),
    [("2.9.10", NativeServer.restart), ("2.15.3", NativeServer.restart), ("2.15.3", reload)],
    ids=["2.9.10-restart", "2.15.3-restart", "2.15.3-reload"],  # a reload of 2.9.10 turns its JetStream off
)
@pytest.mark.usefixtures("quick_reconnects")
async def test_a_refused_inbox_is_named_and_heals_with_the_permissions(
    version: str,
    change: Callable[[NativeServer], object],
    native_server: Servers,
    enduring_peer: OpenPeer,
    log: Log,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    keep = ReconnectSchedule.keep
    monkeypatch.setattr(ReconnectSchedule, "keep", lambda *own: keep(*own) / 100)

    def users(permissions: str) -> str:
        me = f"{{user: Me, password: w, {permissions}}}"
        return f"accounts {{A {{jetstream: enabled, users: [{{user: all, password: w}}, {me}]}}}}"

    password = tmp_path / "password"
    password.write_text("w", "utf-8")
    server = native_server(version, config=users(""))
    await asyncio.to_thread(server.start)
    here = await Scene.make(await enduring_peer(server.url.replace("://", "://all:w@")), "S")
    connection = {"servers": [server.url], "user": "Me", "password_file": str(password)}
    async with running(settings_for("", here.rule(), connections={"default": connection}, **FREE)) as bridge:
        server.config = users(NO_INBOX)
        await asyncio.to_thread(change, server)
        link = bridge.connections["default"]
        await until(lambda: link.reconnects >= 3)

        # Between two attempts no connection exists, so the server refuses no inbox.
        async def is_named() -> bool:
            status, text = await get(bridge, "/readyz")
            return status == 503 and "'default': the server refuses the inbox _INBOX." in text

        async def is_the_error_of_requests() -> bool:
            try:
                await link.api.ask("$JS.API.INFO", b"")
            except InboxRefusedError as error:
                return "the inbox _INBOX." in str(error)
            except BridgeError:
                return False
            return False

        await until(is_named)
        await until(is_the_error_of_requests)
        said = [entry["server_says"] for entry in log if entry["event"] == "connection.refused"]
        assert any('"_INBOX.' in each for each in said)
        server.config = users("")
        await asyncio.to_thread(change, server)
        await until(lambda: bridge.runs[0].ready and link.refused_inbox is None)
        await here.load.burst(3)
        await here.bridged.count(3)
        assert (await get(bridge, "/readyz"))[0] == 200


ACCOUNTS = {
    "global": "",
    "named": "accounts {A {users: [{user: a, password: a}]}}",
    "not_allowed": 'accounts {A {users: [{user: a, password: a, permissions: {publish: {deny: "$SYS.>"}}}]}}',
}


@by_turns("version, account", ["2.9.10", *with_all("2.10.27"), "2.15.3"], ACCOUNTS)
@pytest.mark.usefixtures("quick_reconnects")
async def test_only_the_server_says_that_a_consumer_was_slow(
    version: str, account: str, native_server: Servers, raw_peer: OpenPeer, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_limit, "_SOON", 3600.0)  # whatever time it takes here
    monkeypatch.setattr(ended_connections, "_SAME_SERVER", LIMIT)
    config = f"max_payload: 50000\nmax_pending: 100000\n{ACCOUNTS[account]}"
    user = {"user": "a", "password": Held("a")} if account != "global" else {}

    def is_throttled() -> bool:
        said = any(entry["event"] == "connection.slow_consumer" for entry in log)
        assert said == (connection.api.delivery_limit.messages is not None)
        return said

    async with (
        native_server(version, config=config, jetstream=False, monitor=True) as server,
        cut_wire(server.url) as wire,
    ):
        async with opened(wire.url, **user) as connection:
            await asyncio.to_thread(server.restart)
            await until(lambda: connection.reconnects == 1)
            assert not is_throttled(), "the server was stopped"
            wire.cut()
            await until(lambda: connection.reconnects == 2)
            assert not is_throttled(), "the network ended it"
        async with opened(server.url, **user) as connection:
            publisher = await raw_peer(server.url if account == "global" else server.url.replace("://", "://a:a@"))
            await connection.client.subscribe_batches("s", lambda _: None)
            for number in range(2 if account == "not_allowed" else 1):
                assert not is_throttled()
                await connection.flush()
                reading: Any = connection.client._wide._bare_io_writer
                reading.transport.pause_reading()
                while not _ended(server, connection.client.client_id):
                    for _ in range(50):
                        await publisher.client.publish("s", b"x" * 40000)
                    await publisher.client.flush(int(LIMIT))
                reading.transport.resume_reading()
                await until(partial(_has_reconnected, connection, number + 1))
            assert is_throttled()
            assert not any(entry["event"] == "connection.refused" for entry in log)


def _has_reconnected(connection: Connection, times: int) -> bool:
    return connection.reconnects == times


def _ended(server: NativeServer, client_id: int | None) -> bool:
    """Whether the server has ended a connection."""
    return bool(server.monitored(f"/connz?state=closed&cid={client_id}")["connections"])
