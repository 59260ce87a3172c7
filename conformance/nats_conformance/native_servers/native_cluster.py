"""Three native servers that form a JetStream cluster. It is ready when a meta leader knows all others."""

import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from nats_conformance.native_servers.errors import NoLeaderError, PortTakenError
from nats_conformance.native_servers.fetching import binary_of
from nats_conformance.native_servers.lifetime import Lifetime
from nats_conformance.native_servers.native_server import HOST, NativeServer, free_port

LEADER_LIMIT = 180.0
"""Seconds until a cluster without a meta leader counts as failed; elections take one to ten."""
_LIMITS = (30.0, 60.0, 120.0, LEADER_LIMIT)
"""Seconds until servers that were just started and do not agree are started again, time after time."""
_NAME = "cluster"
_TRIES = 10
_POLL = 0.05


class NativeCluster(Lifetime):
    """`size` servers of `version` in one cluster. `config` is passed to each, as with NativeServer.

    `directory` is kept; without it, `close` removes a temporary one. Without `advertise`, servers do not send clients
    the other nodes' addresses. A context manager, plain and async.
    """

    def __init__(
        self,
        version: str | None = None,
        *,
        binary: Path | None = None,
        size: int = 3,
        config: str = "",
        directory: Path | None = None,
        advertise: bool = True,
    ) -> None:
        self._binary = binary_of(version, binary)
        self._size = size
        self._config = config
        self._advertise = advertise
        self._temporary = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="nats-cluster-"))
        self.nodes: list[NativeServer] = []

    @property
    def urls(self) -> list[str]:
        """The client addresses of all nodes, to be given to one client together."""
        return [node.url for node in self.nodes]

    def start(self) -> Self:
        """Start all nodes and wait for the meta leader. Raises ServerStartError.

        In about one of a hundred starts, a 2.10.27 server has all its routes but never learns the leader that the
        others know. Such a cluster is started again.
        """
        limits = iter(_LIMITS)
        limit = next(limits)
        ports_are_known = bool(self.nodes)  # clients and the stores' members know them, so they cannot change
        for _ in range(_TRIES):
            self._make_nodes()
            try:
                for node in self.nodes:
                    node.start()
                self.await_leader(limit)
            except PortTakenError:
                self.stop()
                if ports_are_known:
                    raise
                for node in self.nodes:
                    node.close()
                    shutil.rmtree(node.store_dir, ignore_errors=True)
                self.nodes.clear()
            except NoLeaderError:
                self.stop()
                if (limit := next(limits, 0.0)) == 0:
                    raise
            except BaseException:
                self.stop()
                raise
            else:
                return self
        raise PortTakenError(f"{_NAME}: {_TRIES} times in a row a port was taken by others")

    def await_leader(self, limit: float = LEADER_LIMIT) -> NativeServer:
        """Wait until all running nodes name one meta leader that knows them as current, and return it.

        Raises NoLeaderError after `limit` seconds, ServerStartError if a node ended by itself, and PortTakenError if it
        ended because of its route port (which a server opens only after it has reported itself ready).
        """
        deadline = time.monotonic() + limit
        while True:
            for node in self.nodes:
                if node.died:
                    raise node.death()
            running = [node for node in self.nodes if node.running]
            states = {node.name: _meta_state(node) for node in running}
            leaders = {leader for leader, _ in states.values()}
            for node in running:
                # A leader that does not know a follower yet would refuse a stream that needs it.
                if leaders == {node.name} and states[node.name][1] >= states.keys() - {node.name}:
                    return node
            if time.monotonic() > deadline:
                tail = running[0].log_tail() if running else []
                raise NoLeaderError(f"{_NAME}: no settled meta leader after {limit:g} s", tail)
            time.sleep(_POLL)

    def bring_back(self, node: NativeServer) -> NativeServer:
        """Start an ended node, and wait until all agree on a meta leader. Return the leader.

        Sometimes a restarted 2.10.27 server never learns the leader that the others know, especially on a busy machine.
        It is then started again. Raises the errors of `await_leader`.
        """
        node.start()
        for limit in _LIMITS[:-1]:
            with suppress(NoLeaderError):
                return self.await_leader(limit)
            node.restart()
        return self.await_leader(_LIMITS[-1])

    def stop(self) -> None:
        """End all nodes; their stores stay."""
        for node in self.nodes:
            node.stop()

    def close(self) -> None:
        """End all nodes, and give up their ports and the temporary directory."""
        for node in self.nodes:
            node.close()
        super().close()

    def interrupt(self) -> None:
        """Kill all nodes. A `start` that waits for a leader in another thread then fails."""
        for node in self.nodes:
            node.interrupt()

    def _make_nodes(self) -> None:
        if self.nodes:
            return  # started before: same ports, same stores
        ports = [free_port() for _ in range(self._size)]
        routes = ", ".join(f'"nats://{HOST}:{port}"' for port in ports)
        for number, port in enumerate(ports, 1):
            quiet = "" if self._advertise else ", no_advertise: true"
            cluster = f'cluster {{ name: "{_NAME}", listen: "{HOST}:{port}", routes: [{routes}]{quiet} }}\n'
            name = f"{_NAME}-{number}"
            self.nodes.append(
                NativeServer(
                    binary=self._binary,
                    config=self._config + "\n" + cluster,
                    name=name,
                    monitor=True,
                    directory=self.directory / name,
                )
            )


def _meta_state(node: NativeServer) -> tuple[str, frozenset[str]]:
    """Return the meta leader that `node` knows, and the current followers, which only the leader knows.

    Both are empty while the node knows none. The fields are those of 2.9.10 to 2.15.1 (`/jsz`, `meta_cluster`).
    """
    try:
        state = node.monitored("/jsz").get("meta_cluster") or {}
    except OSError:
        return "", frozenset()
    followers = (peer for peer in state.get("replicas") or [] if peer.get("current") and not peer.get("offline"))
    return str(state.get("leader") or ""), frozenset(str(peer.get("name")) for peer in followers)
