"""Several replicas of a sidecar: one works on a rule, another takes over, and no two ever write."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

from conformance.servers import SharedServers
from tests.live.raw_messages import OpenPeer
from tests.live.replicas import EveryKind, ended, events, replicas

Name = Callable[[str], str]


async def test_a_clean_stop_hands_over_under_load(
    twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url(twin_version)
    here = await EveryKind.make(await raw_peer(url), unique_name("handover"))
    async with replicas(tmp_path, url, here.name, here.rules) as group:
        await group.free(here.peer)
        first = await group.start()
        await group.leads(first)
        second = await group.start()
        flowing = asyncio.create_task(here.flow())
        await here.least.count(500)
        assert await first.stop() == 0, first.log
        await group.leads(second)
        await here.least.count(len(here.least.messages) + 500)
        await ended(flowing)
        end = await here.end()
        assert await second.stop() == 0, second.log
    await here.keep_what_they_promise(end, crashed=False)


async def test_a_killed_leader_is_replaced(
    twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url(twin_version)
    here = await EveryKind.make(await raw_peer(url), unique_name("killed"))
    async with replicas(tmp_path, url, here.name, here.rules) as group:
        await group.free(here.peer)
        first = await group.start()
        await group.leads(first)
        second = await group.start()
        flowing = asyncio.create_task(here.flow())
        await here.least.count(500)
        await first.kill()
        await group.leads(second)
        await ended(flowing)
        end = await here.end()
        assert await second.stop() == 0, second.log
    await here.keep_what_they_promise(end, crashed=True)


async def test_a_paused_leader_writes_nothing_after_it_was_replaced(
    twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url(twin_version)
    here = await EveryKind.make(await raw_peer(url), unique_name("paused"))
    async with replicas(tmp_path, url, here.name, here.rules) as group:
        await group.free(here.peer)
        first = await group.start()
        await group.leads(first)
        second = await group.start()
        flowing = asyncio.create_task(here.flow())
        await here.least.count(500)
        first.send(signal.SIGSTOP)
        await group.leads(second)
        await ended(flowing)
        end = await here.end()
        seen = len(here.once.messages), len(here.least.messages)
        first.send(signal.SIGCONT)
        await group.lost(first)
        # Whatever it had written is at the server by now: the server handles a connection's requests in order.
        await group.leads(second)
        assert await first.stop() == 0, first.log
        await here.peer.client.flush()
        assert (len(here.once.messages), len(here.least.messages)) == seen
        assert await second.stop() == 0, second.log
    await here.keep_what_they_promise(end, crashed=True)
    assert not events(second, "rule.failed")
