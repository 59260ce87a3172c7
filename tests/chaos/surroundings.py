"""The servers of a run: one or three that get faults, and a witness that never does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias

from nats_conformance.native_servers import NativeCluster, NativeServer, fetch
from nats_conformance.native_servers.errors import NoLeaderError
from tests.chaos.peers import Peer
from tests.chaos.plan import IN_MEMORY, streams_of
from tests.chaos.wires import Wire

Topology: TypeAlias = Literal["single", "cluster"]

_CONFIG = """
accounts {
  SYS { users: [{user: "sys", password: "sys"}] }
  APP { jetstream: enabled, users: [
    {user: "app", password: "app"}
    {user: "sidecar", password: "sidecar"
      %s
    }
  ] }
}
system_account: SYS
no_auth_user: sidecar
write_deadline: "2s"
lame_duck_grace_period: "1s"
"""
"""The run's own user, and the sidecars', who have the permissions that `check --permissions` prints.

Step-down of the meta leader is requested in the system account. A reader that does not read is cut off soon.
"""

_SUBSCRIBE = "subscribe: { allow: ["

_WITNESS = """
max_payload: 8388608
max_pending: 1073741824
"""
PATIENCE = 90.0
"""Seconds until a lane of faults continues although something is not ready again; the checker reports a hang."""

_LAME = 60.0  # seconds that a lame duck has; it takes one per client


def without_inbox(config: str) -> str:
    """Return a server's configuration that refuses sidecars the subscription to answers."""
    assert _SUBSCRIBE in config, "`as_text` writes permissions in another form"
    return config.replace(_SUBSCRIBE, _SUBSCRIBE.replace("allow", 'deny: "_INBOX.>", allow'))


class Surroundings:
    """Servers, the wires to them, and connections of the run's own.

    Args:
        topology: one server, or a cluster of three with streams of three replicas.
        version: of the servers.
        directory: for stores and logs.
        permissions: of the sidecars' user, as nats-server reads them.
    """

    def __init__(self, topology: Topology, version: str, directory: Path, permissions: str) -> None:
        self.topology = topology
        self.version = version
        self._config = _CONFIG % permissions
        self.streams = streams_of(version)
        self._directory = directory
        self._cluster: NativeCluster | None = None
        self.nodes: list[NativeServer] = []
        self._witness = NativeServer(
            binary=fetch(version), config=_WITNESS, name="witness", directory=directory / "witness"
        )
        self.wires: list[Wire] = []
        self.witness_wire = Wire("")

    async def start(self) -> None:
        """Start everything, and create the streams."""
        await self._witness.started()
        if self.topology == "cluster":
            # Without advertising, clients know the wires alone.
            self._cluster = NativeCluster(
                self.version, config=self._config, directory=self._directory / "cluster", advertise=False
            )
            await self._cluster.started()
            self.nodes = self._cluster.nodes
        else:
            node = NativeServer(
                binary=fetch(self.version), config=self._config, name="node-1", directory=self._directory / "node-1"
            )
            await node.started()
            self.nodes = [node]
        self.wires = [Wire(node.url) for node in self.nodes]
        self.witness_wire = Wire(self._witness.url)
        for wire in (*self.wires, self.witness_wire):
            await wire.open()
        peer = self.peer()
        for name, config in self.streams.items():
            await peer.api(f"STREAM.CREATE.{name}", self.stream_config(name, config))
        await peer.api(
            "CONSUMER.DURABLE.CREATE.JOBS.workers",
            {
                "stream_name": "JOBS",
                "config": {"durable_name": "workers", "ack_policy": "explicit", "ack_wait": 5 * 10**9},
            },
        )
        await peer.drop()

    def stream_config(self, name: str, more: dict[str, Any]) -> dict[str, Any]:
        """The whole configuration of a stream."""
        replicas = 3 if self.topology == "cluster" else 1
        return {"name": name, "num_replicas": replicas, "storage": "file", "duplicate_window": 120 * 10**9, **more}

    def peer(self) -> Peer:
        """A new connection to the servers that get faults."""
        return Peer([node.url.replace("://", "://app:app@") for node in self.nodes])

    def system(self) -> Peer:
        """A new connection to their system account."""
        return Peer([node.url.replace("://", "://sys:sys@") for node in self.nodes])

    def witness(self) -> Peer:
        """A new connection to the witness."""
        return Peer([self._witness.url])

    async def lame(self, node: NativeServer) -> None:
        """Lame duck mode, and wait for the end; a server that takes its time is stopped."""
        os.kill(node.pid, signal.SIGUSR2)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAME):
                while node.running:
                    await asyncio.sleep(0.05)
        await asyncio.to_thread(node.stop)

    async def keep(self, node: NativeServer) -> Path:
        """Stop a server, copy its store, and start it again; the copy is what a later power cut leaves."""
        kept = self._directory / "kept"
        await asyncio.to_thread(node.stop)
        await asyncio.to_thread(shutil.copytree, node.store_dir, kept)
        await self.raise_up(node)
        return kept

    async def cut_power(self, node: NativeServer, kept: Path) -> None:
        """SIGKILL, and the store as it was: what it had not written to disk since then is lost."""
        await asyncio.to_thread(node.kill)
        await asyncio.to_thread(shutil.rmtree, node.store_dir)
        kept.rename(node.store_dir)

    async def raise_up(self, *nodes: NativeServer) -> None:
        """Start servers again, and wait until they, or the cluster, are ready."""
        await asyncio.gather(*(asyncio.to_thread(node.start) for node in nodes if not node.running))
        if self._cluster is not None:
            with contextlib.suppress(NoLeaderError):
                await asyncio.to_thread(self._cluster.await_leader, 60.0)
        else:
            await self._create_again()

    async def _create_again(self) -> None:
        """Create the streams in memory, which a single server forgets when it ends; a cluster creates them itself."""
        peer = self.peer()
        for name in IN_MEMORY & self.streams.keys():
            await peer.api(f"STREAM.CREATE.{name}", self.stream_config(name, self.streams[name]))
        await peer.drop()

    async def make_whole(self, peer: Peer, stream: str) -> None:
        """Give a stream its configuration back, and wait until all servers hold it, up to date."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await peer.api(f"STREAM.UPDATE.{stream}", self.stream_config(stream, self.streams[stream]))
                while not await self._is_whole(peer, stream):
                    await asyncio.sleep(0.2)

    async def _is_whole(self, peer: Peer, stream: str) -> bool:
        group = (await peer.try_api(f"STREAM.INFO.{stream}") or {}).get("cluster") or {}
        others = [each for each in group.get("replicas") or () if each.get("current") and not each.get("offline")]
        wanted = int(self.stream_config(stream, self.streams[stream])["num_replicas"])
        return bool(group.get("leader")) and len(others) == wanted - 1

    async def close(self, report: Callable[[str], None]) -> None:
        """End everything."""
        for wire in (*self.wires, self.witness_wire):
            if wire.url:
                await wire.close()
        for server in (*self.nodes, self._witness):
            if server.running:
                await asyncio.to_thread(server.kill)
        report("servers ended")
