"""Leaf connections on real servers: credentials and TLS, what is announced, messages both ways, restored when lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from nats_bridge.bridge.client import leaf_connection
from nats_bridge.bridge.client.leaf_connection import LeafConnection, ask_listener
from nats_bridge.bridge.client.leaf_protocol import Info, Interest, Message, message
from nats_bridge.bridge.client.tasks import end_tasks
from nats_bridge.bridge.errors import BridgeError, ConfigError, CredentialsError, ServerUnreachableError
from nats_bridge.bridge.settings import Connection
from nats_bridge.bridge.settings.connect_options import connect_options
from nats_bridge.native_servers import NativeServer, free_port
from nats_bridge.native_servers.native_server import HOST, LEAF_LISTENER, WEB_LISTENER
from tests.live import credentials
from tests.live.credentials import Files, Make
from tests.live.cut_wire import cut_wire
from tests.live.raw_messages import OpenPeer
from tests.live.until import LIMIT, until

Servers = Callable[..., NativeServer]

OF_THE_SERVER: list[Make] = [credentials.nkey, credentials.creds]
TLS: list[Make] = [credentials.trusted, credentials.client_certificate, credentials.tls_first, credentials.insecure]


@dataclass
class Owner:
    """Remembers what happened."""

    up: int = 0
    down: int = 0
    wanted: dict[bytes, bool] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    def established(self, info: Info) -> None:
        self.up += 1

    def lost(self) -> None:
        self.down += 1

    def interest(self, interest: Interest, *, standing: bool) -> None:
        if interest.added:
            self.wanted[interest.subject] = standing
        else:
            self.wanted.pop(interest.subject, None)

    def received(self, message: Message) -> None:
        self.messages.append(message)

    def refused(self, text: str) -> None:
        self.refusals.append(text)


def options_for(port: int, **more: Any) -> dict[str, Any]:
    written = {"servers": [f"nats://{HOST}:{port}"], "connect_timeout": LIMIT, **more}
    return connect_options(Connection.model_validate(written))


def by_web(server: NativeServer, scheme: str = "ws", **more: Any) -> dict[str, Any]:
    return options_for(0, **{"servers": [f"{scheme}://{HOST}:{server.web_port}"], **more})


def _inside_leafnodes(config: str) -> str:
    jetstream, _, part = config.partition("\n")
    return f"{jetstream}\nleafnodes {{{LEAF_LISTENER}\n{part}\n}}"


@asynccontextmanager
async def leaf(options: dict[str, Any], *subjects: bytes) -> AsyncIterator[tuple[LeafConnection, Owner]]:
    owner = Owner()
    connection = LeafConnection("target", options, "a-leaf", subjects, owner)
    running = asyncio.create_task(connection.run())
    try:
        await until(lambda: connection.is_up)
        yield connection, owner
    finally:
        await end_tasks(running)


@pytest.mark.parametrize("way", OF_THE_SERVER, ids=lambda way: way.__name__)
async def test_the_credentials_of_connections_are_those_of_leaves(
    native_server: Servers, twin_version: str, tmp_path: Path, way: Make
) -> None:
    made = way(Files(tmp_path), "")
    server = native_server(twin_version, config=f"{made.config}\nleafnodes {{{LEAF_LISTENER}}}").start()
    async with leaf(options_for(server.leaf_port, **made.connection)) as (connection, _):
        assert connection.is_up
    with pytest.raises(CredentialsError, match="refuses the connection"):
        await ask_listener("target", options_for(server.leaf_port, **made.wrong), "asks")


async def test_the_listeners_own_password(native_server: Servers, twin_version: str, tmp_path: Path) -> None:
    made = credentials.password(Files(tmp_path), "")
    server = native_server(twin_version, config=_inside_leafnodes(made.config)).start()
    async with leaf(options_for(server.leaf_port, **made.connection)) as (connection, _):
        assert connection.is_up
    with pytest.raises(CredentialsError, match="refuses the connection"):
        await ask_listener("target", options_for(server.leaf_port, **made.wrong), "asks")


@pytest.mark.parametrize("way", TLS, ids=lambda way: way.__name__)
async def test_tls_after_the_servers_first_words_or_before(
    native_server: Servers, newest_version: str, tmp_path: Path, way: Make
) -> None:
    made = way(Files(tmp_path), "")
    server = native_server(newest_version, config=_inside_leafnodes(made.config)).start()
    async with leaf(options_for(server.leaf_port, **made.connection)) as (connection, _):
        assert connection.is_up
    with pytest.raises(BridgeError):
        await ask_listener("target", options_for(server.leaf_port, **made.wrong, connect_timeout=1.0), "asks")


async def test_nothing_is_sent_in_clear_where_tls_is_asked_for(native_server: Servers, newest_version: str) -> None:
    server = native_server(newest_version, config=f"leafnodes {{{LEAF_LISTENER}}}").start()
    with pytest.raises(ConfigError, match="offers no TLS"):
        await ask_listener("target", options_for(server.leaf_port, tls={"insecure": True}), "asks")


async def test_what_is_no_listener_for_leaf_nodes(native_server: Servers, newest_version: str) -> None:
    server = native_server(newest_version).start()
    with pytest.raises(ServerUnreachableError, match="is not a listener for leaf nodes"):
        await ask_listener("target", options_for(server.port), "asks")
    with pytest.raises(ServerUnreachableError, match="connection refused"):
        await ask_listener("target", options_for(free_port()), "asks")


@pytest.mark.parametrize("way", [credentials.trusted, credentials.client_certificate], ids=lambda way: way.__name__)
async def test_a_websocket_in_clear_or_with_tls(
    native_server: Servers, twin_version: str, tmp_path: Path, way: Make
) -> None:
    leafnodes = f"leafnodes {{{LEAF_LISTENER}}}"
    clear = native_server(twin_version, config=f"websocket {{{WEB_LISTENER}, no_tls: true}}\n{leafnodes}").start()
    async with leaf(by_web(clear)) as (connection, _):
        assert connection.is_up
    made = way(Files(tmp_path), "")
    tls = made.config.partition("\n")[2]
    server = native_server(twin_version, config=f"websocket {{{WEB_LISTENER}\n{tls}}}\n{leafnodes}").start()
    for scheme in ("ws", "wss"):  # TLS that is asked for is TLS
        async with leaf(by_web(server, scheme, **made.connection)) as (connection, _):
            assert connection.is_up
    with pytest.raises(BridgeError):
        await ask_listener("target", by_web(server, "wss", **made.wrong, connect_timeout=1.0), "asks")


async def test_what_is_no_websocket_for_leaf_nodes(native_server: Servers, newest_version: str) -> None:
    web = f"websocket {{{WEB_LISTENER}, no_tls: true}}"
    alone = native_server(newest_version, config=web, monitor=True).start()
    for port, said in (
        (alone.web_port, r"closed the connection.*leafnodes \{listen\}, for a WebSocket as well"),
        (alone.monitor_port, r"no WebSocket is served there \(HTTP/1.1 404 Not Found\)"),
        (alone.port, "does not speak HTTP"),
    ):
        with pytest.raises(ServerUnreachableError, match=said):
            await ask_listener("target", options_for(0, servers=[f"ws://{HOST}:{port}"]), "asks")


@pytest.mark.parametrize("scheme", ["nats", "ws"])
async def test_messages_and_interest_both_ways_and_again_after_a_restart(
    native_server: Servers, twin_version: str, raw_peer: OpenPeer, scheme: str
) -> None:
    config = f"leafnodes {{{LEAF_LISTENER}}}\nwebsocket {{{WEB_LISTENER}, no_tls: true}}"
    server = native_server(twin_version, config=config).start()
    options = by_web(server) if scheme == "ws" else options_for(server.leaf_port)
    peer = await raw_peer(server.url)
    early = await peer.collect("early.*")
    await peer.client.flush()
    async with leaf(options, b"to.leaf.>") as (connection, owner):
        assert owner.wanted[b"early.*"] is True
        late = await peer.collect("late")
        await until(lambda: b"late" in owner.wanted)
        assert owner.wanted[b"late"] is False
        block = b"NATS/1.0\r\nA: 1\r\nA: \xff\r\n\r\n"
        connection.write(message(b"early.a", b"re.ply", block, b"\r\nbody"))
        connection.write(message(b"late", b"$JS.ACK.S.c.1.17.3.1600000000000000001.0@stored.subject", b"", b""))
        assert await early.count(1) == [(b"early.a", b"re.ply", block, b"\r\nbody")]
        # A server gives the message of a leaf the subject behind its reply.
        assert await late.count(1) == [(b"stored.subject", b"$JS.ACK.S.c.1.17.3.1600000000000000001.0", b"", b"")]
        peer.publish(b"to.leaf.x", b"hello", block, b"answer.here")
        await until(lambda: bool(owner.messages))
        assert owner.messages == [Message(b"to.leaf.x", b"answer.here", block, b"hello")]
        server.kill()
        await until(lambda: owner.down == 1)
        server.start()
        await until(lambda: owner.up == 2)
        again = await raw_peer(server.url)
        again.publish(b"to.leaf.y", b"again")
        await until(lambda: len(owner.messages) == 2)


async def test_behind_a_proxy_too_a_server_is_found_as_soon_as_it_listens_again(
    native_server: Servers, newest_version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = native_server(newest_version, config=f"leafnodes {{{LEAF_LISTENER}}}").start()
    async with cut_wire(f"nats://{HOST}:{server.leaf_port}") as proxy, leaf(options_for(proxy.port)) as (_, owner):
        monkeypatch.setattr(leaf_connection, "_SHORT", 0.0)
        monkeypatch.setattr(leaf_connection, "_BACKOFF", lambda _: 2 * LIMIT)  # too long for 2.10, as any back-off
        with capture_logs() as log:
            server.kill()
            await until(lambda: "connection.error" in [entry["event"] for entry in log])
        await asyncio.to_thread(server.start)
        await until(lambda: owner.up == 2)


async def test_what_else_a_server_ends_a_connection_for_is_no_refusal(
    native_server: Servers, newest_version: str
) -> None:
    server = native_server(newest_version, config=f"leafnodes {{{LEAF_LISTENER}}}").start()
    async with leaf(options_for(server.leaf_port)) as (connection, owner):
        with capture_logs() as log:
            connection.write(b"NONSENSE\r\n")
            await until(lambda: owner.up == 2)
        assert owner.refusals == []
        assert "Unknown Protocol Operation" in [entry.get("error") for entry in log]


async def test_a_permissions_violation_is_reported(native_server: Servers, newest_version: str) -> None:
    allowed = '{publish: "none.of.it", subscribe: "fine.>"}'
    user = f"{{user: leaf, password: pw, permissions: {allowed}}}"
    config = f"authorization {{users: [{user}]}}\nleafnodes {{{LEAF_LISTENER}}}"
    server = native_server(newest_version, config=config).start()
    options = options_for(server.leaf_port) | {"user": "leaf", "password": lambda: "pw"}
    async with leaf(options, b"fine.>") as (connection, owner):
        connection.write(message(b"not.allowed", b"", b"", b""))
        await until(lambda: bool(owner.refusals))
        assert owner.refusals[0] == 'Permissions Violation for Publish to "not.allowed"'
