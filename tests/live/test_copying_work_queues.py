"""`acknowledge: true`: work-queue and interest streams are copied exactly once, and acknowledged when it is stored."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nats_bridge.native_servers import NativeServer, SharedServers
from tests.live.copies import Copies
from tests.live.cut_wire import cut_wire
from tests.live.raw_messages import OpenPeer
from tests.live.sidecar_process import Load, sidecar_processes
from tests.live.sidecars import running, settings_for
from tests.live.stopped_process import stands_still
from tests.live.tiers import OLDEST_AND_NEWEST, few_or_many
from tests.live.until import until

Name = Callable[[str], str]
RETENTIONS = ["workqueue", "interest"]
DURABLE = "nats-bridge_rule"


class Queue(Copies):
    """A stream whose messages go when they are acknowledged, and its target."""

    def rule(self, **more: Any) -> dict[str, Any]:
        return super().rule(entry={"acknowledge": True, **more.pop("entry", {})}, **more)

    async def left(self) -> int:
        """How many messages the source holds."""
        return int((await self.peer.api(f"STREAM.INFO.{self.name}"))["state"]["messages"])

    async def drained(self) -> None:
        """Wait until the source holds nothing."""

        async def empty() -> bool:
            return not await self.left()

        await until(empty)

    async def hold_all(self, payloads: list[bytes]) -> None:
        """Assert that the target holds these payloads, each once and in this order."""
        assert [message.payload for message in await self.stored()] == payloads

    async def are_all(self, load: Load) -> None:
        """Wait until all of a load is copied and acknowledged, and assert that the target holds it once, in order."""
        await self.holds(load.published)
        await self.drained()
        await self.hold_all([b"%d" % number for number in range(1, load.published + 1)])


@pytest.fixture(params=OLDEST_AND_NEWEST)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("retention", RETENTIONS)
async def test_what_is_copied_is_acknowledged(
    retention: str, version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(version)
    here = await Queue.make(await raw_peer(url), unique_name("q"), origin={"retention": retention})
    load = Load(here.peer, here.name)
    async with running(settings_for(url, here.rule())) as bridge:
        await load.burst(5000)
        await here.are_all(load)
        counters = bridge.runs[0].counters.as_dict()
        await until(lambda: bridge.runs[0].counters.as_dict()["acknowledged"] == 5000)
    assert (counters["copied"], counters["lost"]) == (5000, 0)
    async with running(settings_for(url, here.rule())) as bridge:  # through the same consumer
        await load.burst(500)
        await here.are_all(load)
        assert bridge.runs[0].counters.as_dict()["recreated_consumers"] == 0


@pytest.mark.unstoppable
@pytest.mark.parametrize("retention", RETENTIONS)
@few_or_many(few=3, many=17)
async def test_kills_at_random_moments_lose_and_double_nothing(
    version: str,
    times: int,
    retention: str,
    servers: SharedServers,
    unique_name: Name,
    raw_peer: OpenPeer,
    tmp_path: Path,
) -> None:
    url = await servers.url(version)
    here = await Queue.make(
        await raw_peer(url),
        unique_name("kills"),
        origin={"retention": retention},
        target={"duplicate_window": 100_000_000},  # so that ids help with nothing but what is on its way
    )
    load = Load(await raw_peer(url), here.name)
    chance = random.Random(version)
    async with sidecar_processes(tmp_path) as start:
        for turn in range(times):
            process = await start(url, here.rule())
            await process.ready()
            before = int((await here.state())["messages"])
            burst = asyncio.create_task(load.burst(3000))
            await here.holds(before + chance.randrange(1, 3000))
            if turn == 0:
                process.send(signal.SIGSTOP)
                await until(lambda pid=process.pid: stands_still(pid))  # type: ignore[misc]
                await load.burst(3000)
            await process.kill()
            await burst
        process = await start(url, here.rule())
        await process.ready()
        await here.are_all(load)
        assert await process.stop() == 0, process.log


@pytest.mark.parametrize("retention", RETENTIONS)
@pytest.mark.parametrize("side", ["origin", "target"])
@few_or_many(few=2, many=8)
async def test_each_connection_cut_at_any_moment(
    version: str,
    times: int,
    side: str,
    retention: str,
    servers: SharedServers,
    unique_name: Name,
    raw_peer: OpenPeer,
) -> None:
    url = await servers.url(version)
    here = await Queue.make(await raw_peer(url), unique_name("cut"), origin={"retention": retention})
    load = Load(await raw_peer(url), here.name)
    chance = random.Random(version)
    async with cut_wire(url) as wire:
        through, straight = {"servers": [wire.url]}, {"servers": [url]}
        connections = {
            "default": through if side == "target" else straight,
            "there": through if side == "origin" else straight,
        }
        settings = settings_for(url, here.rule(entry={"from": "there"}), connections=connections)
        async with running(settings) as bridge:
            for _ in range(times):
                before = load.published
                burst = asyncio.create_task(load.burst(3000))
                await here.holds(before + chance.randrange(1, 2500))
                wire.cut()
                await burst
                await here.are_all(load)
            assert bridge.runs[0].counters.as_dict()["lost"] == 0


@pytest.mark.parametrize("retention", RETENTIONS)
@pytest.mark.parametrize("away", ["origin", "target"])
async def test_a_server_is_killed_and_comes_back(
    away: str,
    retention: str,
    version: str,
    native_server: Callable[..., NativeServer],
    raw_peer: OpenPeer,
) -> None:
    with native_server(version) as origin, native_server(version) as target:
        here = await Queue.make(
            await raw_peer(origin.url),
            "S",
            target_peer=await raw_peer(target.url),
            origin={"retention": retention},
        )
        connections = {"default": {"servers": [target.url]}, "there": {"servers": [origin.url]}}
        rule = here.rule(entry={"from": "there"})
        async with running(settings_for(target.url, rule, connections=connections)):
            load = Load(here.peer, here.name)
            for _ in range(3):
                # All of it is known to be stored before the kill, or the source could lose its end unseen.
                await load.burst(2000)
                await here.holds(load.published - 1500)
                server = origin if away == "origin" else target
                server.kill()
                server.start()
                peer = await raw_peer(server.url)
                if away == "origin":
                    here.peer = peer
                    load._peer = peer
                else:
                    here.target_peer = peer
                await here.are_all(load)
