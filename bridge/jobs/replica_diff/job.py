"""A comparison of a stream's replicas from its connection to its result."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from nats_bridge.bridge.client.connection import Connection
from nats_bridge.bridge.client.connection_pool import connected
from nats_bridge.bridge.client.jetstream_api import Json
from nats_bridge.bridge.client.tasks import happens
from nats_bridge.bridge.consuming.missing_streams import named_stream
from nats_bridge.bridge.errors import ApiError, RuleRefusedError
from nats_bridge.bridge.jobs.replica_diff.comparing import Comparing, Difference
from nats_bridge.bridge.jobs.replica_diff.replica_reader import ReplicaReader, placed_consumers
from nats_bridge.bridge.settings import Settings

MOST: Final = 100_000
"""Sequences that differ, after which no more are compared."""

Report = Callable[[str, int, int], None]
"""Called with what is done, the sequence that is compared, and the last one."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The request.

    Attributes:
        stream: the stream.
        connection: the name of the connection that holds it.
        first: the sequence with which the comparison begins.
        last: that with which it ends; None for the stream's last one.
        settle: seconds from the first comparison to the second one of what differs.
    """

    stream: str
    connection: str = "default"
    first: int = 1
    last: int | None = None
    settle: float = 5.0


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica.

    Attributes:
        server: its server.
        leads: whether that leads the stream.
        lag: how many operations it lacks, as the leader reports; 0 of the leader.
        messages: how many were read.
        first: the sequence of the first of them; 0 if there was none.
        last: that of the last.
        unread: why it was not read, or only up to `last`; empty if it was.
    """

    server: str
    leads: bool = False
    lag: int = 0
    messages: int = 0
    first: int = 0
    last: int = 0
    unread: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """What was found.

    Attributes:
        stream: the stream.
        first: the first sequence that was compared.
        last: the last one.
        replicas: all of the stream.
        differences: by sequence.
        cut: whether the comparison ended before its end, because too much differed.
        stopped: whether it was to stop early.
    """

    stream: str
    first: int
    last: int
    replicas: tuple[Replica, ...]
    differences: dict[int, tuple[Difference, ...]] = field(default_factory=dict)
    cut: bool = False
    stopped: bool = False

    @property
    def is_equal(self) -> bool:
        """Whether all replicas were read, and hold the same."""
        unread = any(replica.unread for replica in self.replicas)
        return not (self.differences or unread or self.cut or self.stopped)


async def compare_replicas(
    settings: Settings, wanted: Wanted, stop: asyncio.Event, report: Report = lambda *_: None
) -> Result:
    """Read what every server of a stream holds, and compare.

    What differs is read again after a while: followers are a moment behind, and each server removes on its own what has
    expired. Only what differs both times counts.

    Args:
        settings: with the connection.
        wanted: what to compare.
        stop: set when it should end early.
        report: see `Report`.

    Raises:
        StreamMissingError: there is no such stream.
        RuleRefusedError: it has one replica, or loses what consumers read.
        BridgeError: a server cannot be reached or asked.
    """
    async with connected(settings, {wanted.connection}) as connections:
        connection = connections[wanted.connection]
        found = await _look(connection, wanted, stop, report, "comparing")
        if found.differences and not stop.is_set():
            await happens(stop, within=wanted.settle)
            again = replace(wanted, first=min(found.differences), last=max(found.differences))
            second = await _look(connection, again, stop, report, "comparing again what differs")
            if not second.stopped:
                still = {each: second.differences[each] for each in found.differences if each in second.differences}
                found = replace(found, differences=still)
        return replace(found, stopped=stop.is_set())


async def _look(connection: Connection, wanted: Wanted, stop: asyncio.Event, report: Report, doing: str) -> Result:
    """Compare once."""
    info = await _state(connection, wanted.stream)
    last = int(info["state"]["last_seq"])
    last = last if wanted.last is None else min(wanted.last, last)
    replicas = {replica.server: replica for replica in _replicas(info)}
    online = [server for server, replica in replicas.items() if not replica.unread]
    differences: dict[int, tuple[Difference, ...]] = {}
    async with _readers(connection, wanted.stream, online, wanted.first, last) as readers:
        for server in set(online) - readers.keys():
            replicas[server] = replace(replicas[server], unread="no consumer can be created on its server")
        compared = await _compare(readers, wanted.first, last, differences, stop, lambda at: report(doing, at, last))
    for server, reader in readers.items():
        replicas[server] = replace(
            replicas[server],
            messages=reader.messages,
            first=reader.first,
            last=reader.at,
            unread=reader.stopped,
        )
    return Result(
        wanted.stream,
        wanted.first,
        compared,
        tuple(replicas.values()),
        differences,
        cut=len(differences) >= MOST,
        stopped=stop.is_set(),
    )


async def _compare(
    readers: dict[str, ReplicaReader],
    first: int,
    last: int,
    differences: dict[int, tuple[Difference, ...]],
    stop: asyncio.Event,
    report: Callable[[int], None],
) -> int:
    """Compare what the readers give; return the last sequence that was compared."""
    comparing = Comparing(list(readers))
    while comparing.passed < last and not stop.is_set():
        server = comparing.next_server
        reader = readers[server]
        messages = await reader.read()
        comparing.take(server, messages, None if reader.is_over and not reader.stopped else max(reader.at, first - 1))
        if reader.stopped:
            comparing.leave_out(server)
        for sequence, difference in comparing.differences():
            differences[sequence] = (*differences.get(sequence, ()), difference)
        report(min(comparing.passed, last))
        if len(differences) >= MOST:
            break
    return min(comparing.passed, last)


@asynccontextmanager
async def _readers(
    connection: Connection, stream: str, servers: Sequence[str], first: int, last: int
) -> AsyncIterator[dict[str, ReplicaReader]]:
    """A reader for each server."""
    consumers = await placed_consumers(connection.api, stream, servers, first)
    readers = {server: ReplicaReader(connection, stream, name, last) for server, name in consumers.items()}
    try:
        for reader in readers.values():
            await reader.open()
        yield readers
    finally:
        for reader in readers.values():
            await reader.close()
        if connection.client.is_connected:
            with contextlib.suppress(ApiError):  # a server removes it a little later
                for name in consumers.values():
                    await connection.api.forget_ephemeral(stream, name)


async def _state(connection: Connection, stream: str) -> Json:
    info = await named_stream(connection, stream)
    if not (info.get("cluster") or {}).get("replicas"):
        raise RuleRefusedError(f"stream '{stream}' has one replica: there is nothing to compare it with")
    if info["config"].get("retention", "limits") != "limits":
        raise RuleRefusedError(
            f"stream '{stream}' has retention {info['config']['retention']}: a consumer on a chosen server reads"
            " only streams with retention limits"
        )
    return info


def _replicas(info: Json) -> list[Replica]:
    cluster: dict[str, Any] = info["cluster"]
    followers = [
        Replica(
            peer["name"],
            lag=int(peer.get("lag", 0)),
            unread="its server is offline" if peer.get("offline") else "",
        )
        for peer in cluster["replicas"]
    ]
    return sorted([Replica(cluster["leader"], leads=True), *followers], key=lambda replica: replica.server)
