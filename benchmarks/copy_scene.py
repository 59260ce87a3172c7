"""A source stream, and a target that either the server natively or `nats-bridge run` copies into.

On one server, on two of which either may be far away, or on a cluster. Both copy the same: messages of BENCH on
`bench.N` go to COPY as `copy.N`. Every measurement creates its target again, next to the same source.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Literal

from benchmarks.errors import BenchmarkError
from benchmarks.processes import PATIENT, Program, configuration, cpu_seconds, far_wire, running_bridge
from benchmarks.raw_socket import RawSocket
from benchmarks.stream_growth import unix_seconds
from nats_conformance.native_servers import NativeCluster, NativeServer, fetch
from nats_conformance.native_servers.native_server import HOST, LEAF_LISTENER
from nats_transforms.dialect import server_dialect

SOURCE, TARGET = "BENCH", "COPY"

_HUB, _LEAF = "hub", "leaf"  # JetStream domains
_REPLICAS = 3  # of both streams, in a cluster
_NO_PLACE = "'err_code': 10005"  # in a server's refusal: a peer counts as offline
_PLACED, _PAUSE = 60.0, 0.2  # seconds until it must not any more, and between two tries


@dataclass(frozen=True, slots=True)
class Scene:
    """Servers with a source stream.

    Attributes:
        source: the server that holds it.
        target: the server that gets the copies; it may be the same one.
        storage: of both streams, `memory` or `file`.
        external: what the target's server puts before API requests to the source's; empty for the same server.
        source_url: where a program that copies reaches the source.
        target_url: where it reaches the target.
        replicas: of the target.
        others: more servers of its cluster.
    """

    source: NativeServer
    target: NativeServer
    storage: str
    external: str
    source_url: str
    target_url: str
    replicas: int = 1
    others: tuple[NativeServer, ...] = ()

    def cpu_seconds(self) -> float:
        """CPU time that the servers have used so far."""
        pids = {server.pid for server in (self.source, self.target, *self.others)}
        return sum(cpu_seconds(pid) for pid in pids)


@dataclass(frozen=True, slots=True)
class Copying:
    """A copy in progress.

    Attributes:
        began: when copying began, in seconds since 1970, as the times at which servers store messages.
        stream: the target's name.
        program: what copies; None where the server itself does.
    """

    began: float
    stream: str
    program: Program | None


@contextmanager
def scene(
    version: str,
    storage: str,
    *,
    across: bool = False,
    far: Literal["source", "target", ""] = "",
    round_trip: float = 0.0,
) -> Iterator[Scene]:
    """Run the servers, with an empty source.

    Args:
        version: of the servers.
        storage: `memory` or `file`.
        across: whether the target lies on a server of its own, which is a leaf node of the source's.
        far: which of the two servers is reached through a wire by a program that copies. The leaf node's wire is as
            long.
        round_trip: of the wires, in seconds.
    """
    with ExitStack() as stack:
        binary = fetch(version)
        if not (across or far):
            server = stack.enter_context(NativeServer(binary=binary))
            place = Scene(server, server, storage, "", server.url, server.url)
        else:

            def wire_to(url: str) -> str:
                return stack.enter_context(far_wire(url, round_trip / 2)) if far else url

            hub = f"leafnodes {{{LEAF_LISTENER}}}\njetstream {{domain: {_HUB}}}\n{PATIENT}"
            source = stack.enter_context(NativeServer(binary=binary, config=hub))
            remote = wire_to(f"nats-leaf://{HOST}:{source.leaf_port}")
            leaf = f'leafnodes {{remotes: [{{url: "{remote}"}}]}}\njetstream {{domain: {_LEAF}}}\n{PATIENT}'
            target = stack.enter_context(NativeServer(binary=binary, config=leaf))
            source_url = wire_to(source.url) if far == "source" else source.url
            target_url = wire_to(target.url) if far == "target" else target.url
            place = Scene(source, target, storage, f"$JS.{_HUB}.API", source_url, target_url)
        _make_source(place)
        yield place


@contextmanager
def cluster_scene(version: str, storage: str) -> Iterator[Scene]:
    """Run a cluster of three servers, with an empty source.

    Args:
        version: of the servers.
        storage: `memory` or `file`.
    """
    with NativeCluster(binary=fetch(version), config=PATIENT) as cluster:
        first, *others = cluster.nodes
        place = Scene(first, first, storage, "", first.url, first.url, _REPLICAS, tuple(others))
        _make_source(place, _REPLICAS)
        yield place


def _make_source(place: Scene, replicas: int = 1) -> None:
    with RawSocket(place.source.port) as connection:
        config = {"name": SOURCE, "subjects": ["bench.>"], "storage": place.storage, "num_replicas": replicas}
        _create(connection, config)


def _create(connection: RawSocket, config: dict[str, object]) -> None:
    """Create a stream, as soon as the cluster has all the servers that it needs.

    Raises:
        BenchmarkError: the server refuses, or still lacks servers after a minute.
    """
    deadline = time.monotonic() + _PLACED
    while True:
        try:
            connection.request(f"$JS.API.STREAM.CREATE.{config['name']}", config)
        except BenchmarkError as error:
            if _NO_PLACE not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE)
        else:
            return


@contextmanager
def native_copy(place: Scene) -> Iterator[Copying]:
    """The target as a stream with `sources`; removed at the end.

    Args:
        place: where.
    """
    source: dict[str, object] = {"name": SOURCE}
    if transforms_sources(place.target.version):
        source["subject_transforms"] = [{"src": "bench.*", "dest": "copy.{{wildcard(1)}}"}]
    if place.external:
        source["external"] = {"api": place.external}
    began = time.time()
    with _stream(place, {"name": TARGET, "storage": place.storage, "sources": [source]}):
        yield Copying(began, TARGET, None)


@contextmanager
def own_copy(place: Scene, stream: str = TARGET, until: str = "copying.begins") -> Iterator[Copying]:
    """The target as an ordinary stream, and `nats-bridge run` with one rule; both removed at the end.

    Args:
        place: where.
        stream: the target's name.
        until: the event in the sidecar's log that is waited for, whose time counts as the beginning.

    Raises:
        BenchmarkError: the sidecar did not get there.
    """
    subjects = f"{stream.lower()}.>"
    with (
        _stream(place, {"name": stream, "storage": place.storage, "subjects": [subjects]}),
        running_bridge(bridge_config(place.source_url, place.target_url, stream), until) as program,
    ):
        yield Copying(unix_seconds(program.logged(until)["timestamp"]), stream, program)


@contextmanager
def program_copy(place: Scene, running: Callable[[str], AbstractContextManager[Program]]) -> Iterator[Copying]:
    """The target as an ordinary stream, and another program that copies into it; both removed at the end.

    Args:
        place: where, on one server.
        running: starts the program, given the server's URL; the copy begins when it reports that it is ready.
    """
    with (
        _stream(place, {"name": TARGET, "storage": place.storage, "subjects": ["copy.>"]}),
        running(place.source_url) as program,
    ):
        yield Copying(time.time() - (time.monotonic() - program.ready), TARGET, program)


def bridge_config(source: str, target: str, stream: str = TARGET) -> str:
    """The sidecar's configuration file.

    Args:
        source: URL of the server with the source.
        target: URL of the server with the target.
        stream: the target's name; the copies have it in small letters before their last token.
    """
    transform = {"src": "bench.*", "dest": f"{stream.lower()}.{{{{wildcard(1)}}}}"}
    # On one server, both directions use one connection, as a user with one server would configure it.
    connections: dict[str, object] = {"default": {"servers": [target]}}
    entry: dict[str, object] = {"name": SOURCE, "subject_transforms": [transform]}
    if source != target:
        connections["source"] = {"servers": [source]}
        entry["from"] = "source"
    rule = {"name": "bench", "kind": "sources", "stream": stream, "sources": [entry]}
    return configuration(target, rule, connections=connections)


@contextmanager
def _stream(place: Scene, config: dict[str, object]) -> Iterator[None]:
    with RawSocket(place.target.port) as connection:
        _create(connection, {**config, "num_replicas": place.replicas})
        yield
        connection.request(f"$JS.API.STREAM.DELETE.{config['name']}")


def transforms_sources(version: str) -> bool:
    """Whether a server of this version can transform what it copies."""
    return server_dialect(version).stream_fields_of_2_10
