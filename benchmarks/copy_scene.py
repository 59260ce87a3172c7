"""A source stream, and a target that either the server natively or `nats-bridge run` copies into.

Both copy the same: messages of BENCH on `bench.N` go to COPY as `copy.N`. Every measurement creates its target again,
next to the same source.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

from benchmarks.processes import Program, cpu_seconds, running_bridge
from benchmarks.raw_socket import RawSocket
from benchmarks.stream_growth import unix_seconds
from nats_bridge.native_servers import NativeServer, fetch, free_port

__all__ = [
    "SOURCE",
    "TARGET",
    "Copying",
    "Scene",
    "bridge_config",
    "native_copy",
    "own_copy",
    "program_copy",
    "scene",
    "through_copy",
    "transforms_sources",
]

SOURCE, TARGET = "BENCH", "COPY"

_FIRST_WITH_TRANSFORMS = (2, 10)  # of sources
_HUB, _LEAF = "hub", "leaf"  # JetStream domains


@dataclass(frozen=True, slots=True)
class Scene:
    """Servers with a source stream.

    Attributes:
        source: the server that holds it.
        target: the server that gets the copies; it may be the same one.
        storage: of both streams, `memory` or `file`.
        external: what the target's server puts before API requests to the source's; empty for the same server.
        leaves: the port of the target's listener for leaf nodes; 0 without one.
    """

    source: NativeServer
    target: NativeServer
    storage: str
    external: str = ""
    leaves: int = 0

    def cpu_seconds(self) -> float:
        """CPU time that the servers have used so far."""
        return sum(cpu_seconds(pid) for pid in {self.source.pid, self.target.pid})


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
def scene(version: str, storage: str, *, across: bool = False) -> Iterator[Scene]:
    """Run the servers, with an empty source.

    Args:
        version: of the servers.
        storage: `memory` or `file`.
        across: whether the target lies on a server of its own, which is a leaf node of the source's.
    """
    leaves = 0
    with ExitStack() as stack:
        binary = fetch(version)
        if across:
            port, leaves = free_port(), free_port()
            hub = f'leafnodes {{listen: "127.0.0.1:{port}"}}\njetstream {{domain: {_HUB}}}\n'
            remote = f'listen: "127.0.0.1:{leaves}", remotes: [{{url: "nats-leaf://127.0.0.1:{port}"}}]'
            leaf = f"leafnodes {{{remote}}}\njetstream {{domain: {_LEAF}}}\n"
            source = stack.enter_context(NativeServer(binary=binary, config=hub))
            target = stack.enter_context(NativeServer(binary=binary, config=leaf))
        else:
            source = target = stack.enter_context(NativeServer(binary=binary))
        with RawSocket(source.port) as connection:
            config = {"name": SOURCE, "subjects": ["bench.>"], "storage": storage}
            connection.request(f"$JS.API.STREAM.CREATE.{SOURCE}", config)
        yield Scene(source, target, storage, f"$JS.{_HUB}.API" if across else "", leaves)


@contextmanager
def native_copy(place: Scene, stream: str = TARGET) -> Iterator[Copying]:
    """The target as a stream with `sources`; removed at the end.

    Args:
        place: where.
        stream: the target's name.
    """
    source: dict[str, object] = {"name": SOURCE}
    if transforms_sources(place.target.version):
        source["subject_transforms"] = [{"src": "bench.*", "dest": "copy.{{wildcard(1)}}"}]
    if place.external:
        source["external"] = {"api": place.external}
    began = time.time()
    with _stream(place, {"name": stream, "storage": place.storage, "sources": [source]}):
        yield Copying(began, stream, None)


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
        running_bridge(bridge_config(place.source.url, place.target.url, stream), until) as program,
    ):
        yield Copying(unix_seconds(program.logged(until)["timestamp"]), stream, program)


@contextmanager
def through_copy(place: Scene, stream: str = TARGET) -> Iterator[Copying]:
    """The target as a stream with `sources` that reads through `nats-bridge run`; both removed at the end.

    Args:
        place: where, across servers.
        stream: the target's name.
    """
    rule = {
        "name": "bench",
        "kind": "native_copy",
        "stream": SOURCE,
        "prefix": "bridge",
        "leaf": "target",
        "subject_transforms": [{"src": "bench.*", "dest": "copy.{{wildcard(1)}}"}],
    }
    document = {
        "connections": {
            "default": {"servers": [place.source.url]},
            "target": {"servers": [f"nats://127.0.0.1:{place.leaves}"]},
        },
        "http": {"listen": ""},
        "log": {"format": "json"},
        "rules": [rule],
    }
    source = {"name": SOURCE, "external": {"api": "bridge.API", "deliver": "bridge.deliver"}}
    with running_bridge(json.dumps(document), "connection.back") as program:
        began = time.time()
        with _stream(place, {"name": stream, "storage": place.storage, "sources": [source]}):
            yield Copying(began, stream, program)


@contextmanager
def program_copy(place: Scene, running: Callable[[str], AbstractContextManager[Program]]) -> Iterator[Copying]:
    """The target as an ordinary stream, and another program that copies into it; both removed at the end.

    Args:
        place: where, on one server.
        running: starts the program, given the server's URL; the copy begins when it reports that it is ready.
    """
    with (
        _stream(place, {"name": TARGET, "storage": place.storage, "subjects": ["copy.>"]}),
        running(place.source.url) as program,
    ):
        yield Copying(time.time() - (time.monotonic() - program.ready), TARGET, program)


def bridge_config(source: str, target: str, stream: str = TARGET) -> str:
    """The sidecar's configuration file (JSON is YAML too).

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
        connections["origin"] = {"servers": [source]}
        entry["from"] = "origin"
    rule = {"name": "bench", "kind": "sources", "stream": stream, "sources": [entry]}
    document = {
        "connections": connections,
        "http": {"listen": ""},
        "log": {"format": "json"},
        "rules": [rule],
    }
    return json.dumps(document)


@contextmanager
def _stream(place: Scene, config: dict[str, object]) -> Iterator[None]:
    with RawSocket(place.target.port) as connection:
        connection.request(f"$JS.API.STREAM.CREATE.{config['name']}", config)
        yield
        connection.request(f"$JS.API.STREAM.DELETE.{config['name']}")


def transforms_sources(version: str) -> bool:
    """Whether a server of this version can transform what it copies."""
    return tuple(int(field) for field in version.split(".")[:2]) >= _FIRST_WITH_TRANSFORMS
