"""A target whose disk takes nothing more: the rule says so for as long as that lasts, and copies everything afterwards.

A limit on the size of files stands for the full disk: the server's writes fail as they do there. Servers of 2.15 leave
publications without an answer then, until they are restarted. Servers of 2.10 answer with the error.
"""

from __future__ import annotations

import resource
from collections.abc import Callable

import pytest

from nats_conformance.native_servers import NativeServer
from tests.live.copies import Copies
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecars import running, settings_for
from tests.live.until import until

SIZE = 100_000
"""Bytes of a message."""
ROOM = 3 * SIZE
MESSAGES = 8


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("2.10.27", "room in stream '{}', which accepts nothing at the moment"),
        ("2.15.3", "an answer of stream '{}', which does not answer some messages"),
    ],
)
async def test_a_rule_is_not_ready_while_the_targets_disk_is_full(
    version: str,
    said: str,
    servers: SharedServers,
    native_server: Callable[..., NativeServer],
    unique_name: Name,
    raw_peer: OpenPeer,
) -> None:
    url = await servers.url("2.10.27")
    with native_server(version) as west:
        there = await raw_peer(west.url)
        copies = await Copies.make(await raw_peer(url), unique_name("disk"), target_peer=there)
        resource.prlimit(west.pid, resource.RLIMIT_FSIZE, (ROOM, resource.RLIM_INFINITY))
        for number in range(MESSAGES):
            await copies.peer.store(f"{copies.name}.{number}".encode(), bytes(SIZE))
        connections = {"default": {"servers": [url]}, "west": {"servers": [west.url]}}
        async with running(settings_for(url, copies.rule(to="west"), connections=connections)) as sidecar:
            run = sidecar.supervisors[0].run
            assert run is not None
            await until(lambda: not run.ready)
            assert run.waiting_for == said.format(copies.target)
            # Not between two rounds either, in which the connection works and the source is read.
            rounds, seen = run.counters.rounds, set()

            def two_rounds_later() -> bool:
                seen.add((run.ready, run.waiting_for))
                return run.counters.waits > 0 or run.counters.rounds >= rounds + 2

            await until(two_rounds_later)
            assert seen == {(False, said.format(copies.target))}
            west.restart(kill=True)
            await until(lambda: run.ready)
            copies.target_peer = await raw_peer(west.url)
            await copies.holds(MESSAGES)
            assert run.waiting_for is None
        await copies.are_exact()
