"""Native servers: really started, stopped, killed, restarted, configured, clustered."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from textwrap import dedent

import nats.errors
import nats.js.errors
import pytest
from nats.aio.client import Client

from nats_conformance.native_servers import (
    NativeCluster,
    NativeServer,
    PortTakenError,
    ServersError,
    ServerStartError,
    fetch,
    free_port,
)
from nats_conformance.native_servers.errors import NoLeaderError
from nats_transforms.tested_versions import LIVE_VERSIONS
from tests.live.raw_messages import NO_PEERS
from tests.live.shared_servers import Name, SharedServers
from tests.live.until import LIMIT, until

NEWEST = LIVE_VERSIONS[-1]
Make = Callable[..., NativeServer]
Connect = Callable[..., Awaitable[Client]]


async def test_a_shared_server_is_the_wanted_version_and_starts_once(
    servers: SharedServers, twin_version: str, connect: Connect
) -> None:
    url = await servers.url(twin_version)
    assert servers[twin_version].url == url
    assert await servers.url(twin_version) == url
    connection = await connect(servers[twin_version])
    assert str(connection.connected_server_version) == f"<nats server v{twin_version}>"
    assert servers[twin_version].version == twin_version


async def test_different_versions_are_different_servers(servers: SharedServers) -> None:
    assert len({await servers.url(version) for version in LIVE_VERSIONS}) == len(LIVE_VERSIONS)


async def test_unique_names_differ(unique_name: Name) -> None:
    assert unique_name("orders") != unique_name("orders")


async def test_a_message_stored_before_a_restart_or_crash_is_there_after(
    native_server: Make, connect: Connect, twin_version: str
) -> None:
    async with native_server(twin_version) as server:
        connection = await connect(server)
        await connection.jetstream(timeout=LIMIT).add_stream(name="KEPT", subjects=["kept.>"])
        for number, kill in ((1, False), (2, True)):
            await connection.jetstream(timeout=LIMIT).publish("kept.one", str(number).encode())
            await connection.close()
            url, pid = server.url, server.pid
            server.restart(kill=kill)
            assert server.url == url
            assert server.pid != pid
            connection = await connect(server)
            info = await connection.jetstream(timeout=LIMIT).stream_info("KEPT")
            assert info.state.messages == number


async def test_leaving_the_context_ends_the_process_and_removes_its_folder(native_server: Make) -> None:
    async with native_server(NEWEST) as server:
        pid, port, folder = server.pid, server.port, server.directory
        assert folder.exists()
    assert not server.running
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


async def test_a_task_that_is_cancelled_while_servers_start_ends_them() -> None:
    cluster = NativeCluster(NEWEST, size=1)  # one node elects no leader, and the start waits for one
    starting = asyncio.create_task(cluster.started())
    await until(lambda: bool(cluster.nodes) and cluster.nodes[0].running)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not cluster.nodes[0].running
    assert not cluster.directory.exists()


def test_a_program_that_ends_and_forgot_a_server_leaves_none_running(tmp_path: Path) -> None:
    forgetful = """
        import gc
        from nats_conformance.native_servers import NativeServer, fetch
        print(NativeServer(binary=fetch("2.15.3")).start().pid)
        gc.collect()
    """
    done = subprocess.run([sys.executable, "-c", dedent(forgetful)], capture_output=True, text=True, check=True)
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


def test_a_given_directory_keeps_log_store_and_configuration(native_server: Make, tmp_path: Path) -> None:
    with native_server(NEWEST, directory=tmp_path / "mine", config="max_payload: 4096\n") as server:
        assert server.store_dir == tmp_path / "mine" / "store"
    assert "Server is ready" in server.log_file.read_text()
    assert (tmp_path / "mine" / "store").is_dir()
    assert (tmp_path / "mine" / "server.conf").read_text() == "max_payload: 4096\n"


async def test_stop_start_and_kill_can_be_repeated(native_server: Make, connect: Connect) -> None:
    server = native_server(NEWEST)
    server.stop()
    server.start()
    with pytest.raises(ServersError, match="running already"):
        server.start()
    server.kill()
    server.kill()
    assert not server.running
    with pytest.raises(ServersError, match="not running"):
        _ = server.pid
    server.start()
    connection = await connect(server)
    assert connection.is_connected


async def test_configuration_text_is_in_force(native_server: Make, connect: Connect, twin_version: str) -> None:
    config = """
        max_payload: 2048
        accounts {
          A { users: [{user: ann, password: secret}], jetstream: enabled }
          SYS { users: [{user: root, password: secret}] }
        }
        system_account: SYS
    """
    async with native_server(twin_version, config=config) as server:
        connection = await connect(server, user="ann", password="secret")
        assert connection.max_payload == 2048
        account = await connection.jetstream(timeout=LIMIT).account_info()
        assert account.streams == 0

        async def ignore(_: Exception) -> None:
            return

        with pytest.raises(nats.errors.Error):
            await connect(server, user="ann", password="wrong", allow_reconnect=False, error_cb=ignore)


def test_a_refused_configuration_is_reported_with_the_servers_own_words(native_server: Make, twin_version: str) -> None:
    server = native_server(twin_version, config="accounts {")
    with pytest.raises(ServerStartError) as caught:
        server.start()
    assert "Unexpected EOF" in caught.value.log_tail[-1]
    assert "ended on its own with 1" in str(caught.value)
    assert not server.running


def test_a_chosen_port_that_is_taken_is_reported(native_server: Make, newest_version: str) -> None:
    with native_server(NEWEST) as first:
        second = native_server(newest_version, port=first.port)
        with pytest.raises(PortTakenError, match="address already in use"):
            second.start()


def test_a_port_taken_in_between_is_replaced(native_server: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    with native_server(NEWEST) as first:
        offered = iter([first.port, first.port])
        real = free_port
        monkeypatch.setattr(
            "nats_conformance.native_servers.native_server.free_port", lambda: next(offered, None) or real()
        )
        with native_server(NEWEST) as second:
            assert second.port != first.port


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no second socket may have the address")
def test_the_port_of_a_stopped_server_is_given_to_nobody(native_server: Make) -> None:
    with native_server(NEWEST) as server, socket.socket() as other:
        server.stop()
        with pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", server.port))
        server.start()
        server.close()
        other.bind(("127.0.0.1", server.port))


def test_without_jetstream_no_store_is_made(native_server: Make, tmp_path: Path) -> None:
    with native_server(NEWEST, jetstream=False, directory=tmp_path / "core") as server:
        assert server.running
    assert not (tmp_path / "core" / "store").exists()


def test_monitoring_answers_where_the_server_says(native_server: Make) -> None:
    server = native_server(NEWEST, monitor=True).start()
    assert server.monitored("/varz")["server_name"] == server.name
    plain = native_server(NEWEST)
    with pytest.raises(ServersError, match="monitor=True"):
        _ = plain.monitor_url


def test_a_server_that_was_never_started_has_no_address() -> None:
    server = NativeServer(binary=fetch(NEWEST))
    with pytest.raises(ServersError, match="before it is started"):
        _ = server.url
    server.close()
    assert not server.directory.exists()


@pytest.mark.exhaustive
async def test_three_nodes_form_a_cluster_and_outlive_their_leader(connect: Connect, twin_version: str) -> None:
    async with NativeCluster(binary=fetch(twin_version), config="max_payload: 4096") as cluster:
        leader = cluster.await_leader()
        assert [node.name for node in cluster.nodes] == ["cluster-1", "cluster-2", "cluster-3"]
        follower = next(node for node in cluster.nodes if node is not leader)
        connection = await connect(follower)
        assert connection.max_payload == 4096
        jetstream = connection.jetstream(timeout=LIMIT)
        replicas: list[object] = []

        async def created() -> bool:
            try:
                info = await jetstream.add_stream(name="R3", subjects=["r3.>"], num_replicas=3)
            except nats.js.errors.APIError as error:
                # The leader of a cluster that was just started may not know its members' room yet.
                if error.err_code != NO_PEERS:
                    raise
                return False
            assert info.cluster is not None
            replicas.extend(info.cluster.replicas or [])
            return True

        await until(created)
        assert len(replicas) == 2
        await connection.close()
        leader.kill()
        assert cluster.await_leader() is not leader
        cluster.bring_back(leader)
        assert all(node.running for node in cluster.nodes)
    assert not cluster.directory.exists()
    assert not any(node.running for node in cluster.nodes)


@pytest.mark.exhaustive
def test_a_node_that_never_learns_of_the_leader_is_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    with NativeCluster(NEWEST) as cluster:
        node, settled = cluster.nodes[0], cluster.await_leader
        node.kill()
        seen: list[int] = []

        def not_at_first(limit: float) -> NativeServer:
            seen.append(node.pid)
            if len(seen) == 1:
                raise NoLeaderError("on purpose")
            return settled(limit)

        monkeypatch.setattr(cluster, "await_leader", not_at_first)
        assert cluster.bring_back(node).running
        assert node.running
        assert len(set(seen)) == 2


def test_a_cluster_that_cannot_start_says_why_and_leaves_nothing() -> None:
    cluster = NativeCluster(NEWEST, config="accounts {")
    with pytest.raises(ServerStartError, match="cluster-1"), cluster:
        pytest.fail("it started")
    assert not cluster.directory.exists()


def test_a_server_that_ends_on_its_own_is_seen(native_server: Make) -> None:
    server = native_server(NEWEST).start()
    assert not server.died
    pid = server.pid
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert server.died
    assert not server.running
    assert "ended on its own with -9" in str(server.death())
    server.start()
    assert not server.died


@pytest.mark.exhaustive
def test_a_cluster_chooses_again_when_a_route_port_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        offered = iter([other.getsockname()[1]])
        monkeypatch.setattr(
            "nats_conformance.native_servers.native_cluster.free_port", lambda: next(offered, None) or free_port()
        )
        with NativeCluster(NEWEST) as cluster:
            assert cluster.await_leader().running
            assert next(offered, "used up") == "used up"


@pytest.mark.exhaustive
def test_a_started_cluster_keeps_its_stores_when_a_port_is_lost(tmp_path: Path) -> None:
    with NativeCluster(NEWEST, directory=tmp_path) as cluster:
        urls = cluster.urls
        cluster.stop()
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", cluster.nodes[0].port))
            other.listen()
            with pytest.raises(PortTakenError):
                cluster.start()
        assert (tmp_path / "cluster-1" / "store").is_dir()
        cluster.start()
        assert cluster.await_leader().running
        assert cluster.urls == urls
    assert (tmp_path / "cluster-1" / "server.log").is_file()
