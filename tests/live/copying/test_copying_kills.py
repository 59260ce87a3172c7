"""Copies are made exactly once, whatever happens to the sidecar's process."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.live.copies import Copies
from tests.live.copying.kills import killed_at_random
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecar_process import Load, sidecar_processes
from tests.live.tiers import on_each_version


@pytest.mark.unstoppable
@on_each_version(times=2)
async def test_kills_at_random_moments_lose_and_double_nothing(
    version: str,
    times: int,
    servers: SharedServers,
    unique_name: Name,
    raw_peer: OpenPeer,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    url = await servers.url(version)
    here = await Copies.make(await raw_peer(url), unique_name("kills"))
    load = Load(await raw_peer(url), here.name)
    during_load = await killed_at_random(here, load, lambda: here.holds(load.published), url, times, tmp_path)
    await here.are_exact()
    record_property("kills with messages in flight", during_load)
    assert during_load


@on_each_version(times=2)
async def test_two_sidecars_that_race_store_each_message_once(
    version: str, times: int, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url(version)
    here = await Copies.make(await raw_peer(url), unique_name("race"))
    load = Load(await raw_peer(url), here.name)
    chance = random.Random(version)
    async with sidecar_processes(tmp_path) as start:
        racing = [await start(url, here.rule()) for _ in range(2)]
        for process in racing:
            await process.ready()
        for turn in range(times):
            before = load.published
            burst = asyncio.create_task(load.burst(2000))
            await here.holds(before + chance.randrange(1, 2000))
            await racing[turn % 2].kill()
            await burst
            racing[turn % 2] = await start(url, here.rule())
            await racing[turn % 2].ready()
        await here.holds(load.published)
        for process in racing:
            assert await process.stop() == 0, process.log
    await here.are_exact()


@on_each_version(times=1)
async def test_a_stop_under_load_leaves_nothing_half_done(
    version: str, times: int, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url(version)
    here = await Copies.make(await raw_peer(url), unique_name("stops"))
    load = Load(await raw_peer(url), here.name)
    async with sidecar_processes(tmp_path) as start:
        for _ in range(times):
            process = await start(url, here.rule())
            await process.ready()
            before = load.published
            burst = asyncio.create_task(load.burst(3000))
            await here.holds(before + 1000)
            assert await process.stop() == 0, process.log
            await burst
        consumers = await here.peer.api(f"CONSUMER.LIST.{here.name}")
        assert not consumers.get("consumers"), "ephemeral consumers are deleted at the stop"
        process = await start(url, here.rule())
        await process.ready()
        await here.holds(load.published)
        assert await process.stop() == 0, process.log
    await here.are_exact()


@pytest.mark.unstoppable
async def test_a_stopped_process_that_wakes_up_doubles_nothing(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    """A replica that is paused by the machine and resumes later, after another has taken over."""
    url = await servers.url(newest_version)
    here = await Copies.make(await raw_peer(url), unique_name("pause"))
    load = Load(await raw_peer(url), here.name)
    async with sidecar_processes(tmp_path) as start:
        sleeping = await start(url, here.rule())
        await sleeping.ready()
        burst = asyncio.create_task(load.burst(5000))
        await here.holds(1000)
        sleeping.send(signal.SIGSTOP)
        await burst
        awake = await start(url, here.rule())
        await awake.ready()
        await here.holds(load.published)
        sleeping.send(signal.SIGCONT)
        await load.burst(1000)
        await here.holds(load.published)
        for process in (sleeping, awake):
            assert await process.stop() == 0, process.log
    await here.are_exact()
