"""Servers, networks and sidecars that stop for a while, or take their leave: rules notice it, report it, and resume."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from nats_bridge.client import connection, jetstream_api
from nats_bridge.client import connection_pool as made
from nats_bridge.errors import ApiError
from tests.live.cut_wire import cut_wire
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, Servers, SharedServers
from tests.live.sidecar_process import Scene, Seen, sidecar_processes
from tests.live.sidecars import running, settings_for
from tests.live.until import LIMIT, until

pytestmark = pytest.mark.usefixtures("quick_heartbeats")


KINDS: dict[str, dict[str, Any]] = {
    "once": {"delivery": "at_most_once"},
    "atleast": {"delivery": "at_least_once"},
    "fleeting": {"durable": False},
}


class Three:
    """A stream, republished by rules of three kinds to a server that stays."""

    def __init__(self, here: Scene, seen: dict[str, Seen], rules: list[dict[str, Any]]) -> None:
        self.here = here
        self.seen = seen
        self.rules = rules

    @classmethod
    async def make(cls, url: str, target: str, name: str, raw_peer: OpenPeer) -> Three:
        listener = await raw_peer(target)
        here = await Scene.make(await raw_peer(url), name, listener)
        seen = {kind: await Seen.of(listener, f"{kind}{name}.>") for kind in KINDS}
        rules = [
            here.rule(name=kind, to="target", republish={"src": f"{name}.>", "dest": f"{kind}{name}.>"}, **more)
            for kind, more in KINDS.items()
        ]
        return cls(here, seen, rules)

    async def are_exact(self) -> None:
        """Store one more message; every rule has sent it and each before it once, in order."""
        end = await self.here.end()
        for kind, each in self.seen.items():
            await each.until_sequence(end)
            assert each.sequences == list(range(1, end + 1)), kind


def connections(target: str, *urls: str) -> dict[str, Any]:
    return {"default": {"servers": list(urls)}, "target": {"servers": [target]}}


@pytest.mark.unstoppable
async def test_a_sidecar_that_was_stopped_resumes(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    """The machine takes the processor away for so long that the server gives it up."""
    url, target = await servers.url(newest_version), await servers.url("2.15.3")
    three = await Three.make(url, target, unique_name("stopped"), raw_peer)
    async with cut_wire(url) as wire, sidecar_processes(tmp_path) as start:
        process = await start("", *three.rules, connections=connections(target, wire.url))
        await process.ready()
        for _ in range(3):
            process.send(signal.SIGSTOP)
            await three.here.load.burst(1000)
            wire.cut()
            await three.here.load.burst(1000)
            process.send(signal.SIGCONT)
            await three.are_exact()
        assert await process.stop() == 0, process.log


async def test_a_network_that_swallows_everything_for_a_while(
    twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url, target = await servers.url(twin_version), await servers.url("2.15.3")
    three = await Three.make(url, target, unique_name("silent"), raw_peer)
    async with cut_wire(url) as wire:
        settings = settings_for("", *three.rules, connections=connections(target, wire.url), dialect="native")
        async with running(settings) as bridge:
            await three.here.load.burst(1000)
            wire.fall_silent()
            await three.here.load.burst(1000)
            await until(lambda: not any(run.ready for run in bridge.runs))
            assert all(run.waiting_for for run in bridge.runs)
            wire.speak_again()
            await three.are_exact()
            await until(lambda: all(run.ready for run in bridge.runs))
            assert [run.counters.as_dict()["reconnects"] for run in bridge.runs] == [0, 0, 0]


async def test_a_server_that_says_nothing_any_more_is_left_for_another(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_connection = made.open_connection

    async def opened(name: str, options: dict[str, Any], **more: Any) -> connection.Connection:
        # The target's connection must not be given up where the machine is slow: what is sent once would be in doubt.
        with pytest.MonkeyPatch.context() as quick:
            quick.setattr(connection, "_PING", LIMIT if name == "target" else 0.3)
            return await open_connection(name, options, **more)

    monkeypatch.setattr(made, "open_connection", opened)
    url, target = await servers.url("2.15.3"), await servers.url("2.15.3")
    three = await Three.make(url, target, unique_name("hangs"), raw_peer)
    async with cut_wire(url) as one, cut_wire(url) as other:
        settings = settings_for("", *three.rules, connections=connections(target, one.url, other.url))
        async with running(settings) as bridge:
            await three.here.load.burst(1000)
            used = one if one.connections else other
            used.fall_silent()
            await three.here.load.burst(1000)
            await until(lambda: all(run.counters.as_dict()["reconnects"] for run in bridge.runs))
            await three.are_exact()
            await until(lambda: all(run.ready for run in bridge.runs))
            used.cut()  # or the server would take us for two


async def test_a_server_that_takes_its_leave(
    twin_version: str, native_server: Servers, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """Lame duck mode: the server ends JetStream first, its connections a little later, and itself then."""
    target, name = await servers.url("2.15.3"), unique_name("leave")
    lame_duck = 'lame_duck_duration: "30s"\nlame_duck_grace_period: "1s"'  # the shortest that it takes
    async with native_server(twin_version, config=lame_duck) as server:
        three = await Three.make(server.url, target, name, raw_peer)
        settings = settings_for("", *three.rules, connections=connections(target, server.url), dialect="native")
        async with running(settings) as bridge:
            await three.here.load.burst(1000)
            os.kill(server.pid, signal.SIGUSR2)
            await until(lambda: not any(run.ready for run in bridge.runs))
            await until(lambda: not server.running)
            await asyncio.to_thread(server.restart)
            peer = await raw_peer(server.url)
            end = int((await peer.store(f"{name}.end".encode()))["seq"])
            for kind, each in three.seen.items():
                await each.until_sequence(end)
                assert each.sequences == list(range(1, end + 1)), kind
            await until(lambda: all(run.ready for run in bridge.runs))


@pytest.mark.parametrize("delivery", ["at_most_once", "at_least_once"])
async def test_a_server_killed_while_a_predecessor_is_looked_for(
    delivery: str, native_server: Servers, servers: SharedServers, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jetstream_api, "_PATIENCE", 0)
    target = await servers.url("2.15.3")
    async with native_server("2.15.3") as server:
        here = await Scene.make(await raw_peer(server.url), "S", await raw_peer(target))
        rule = here.rule(delivery=delivery, to="target")
        async with running(settings_for("", rule, connections=connections(target, server.url))) as bridge:
            (run,) = bridge.runs
            api = run._source.api
            look, looked = api.newest_before, asyncio.Event()

            async def newest_before(*where: Any) -> int:
                if not looked.is_set():
                    await asyncio.to_thread(server.kill)
                    looked.set()
                return await look(*where)

            async def unanswered(*_: Any) -> Any:
                # Then the predecessor is looked for when it is needed.
                raise ApiError("no answer", http_code=408, err_code=0, description="timeout", retriable=True)

            for _ in range(3):
                await here.peer.store(b"S.a")
            await here.bridged.count(3)
            api.newest_before = newest_before  # type: ignore[method-assign]
            api.last_message = unanswered  # type: ignore[method-assign]
            await here.peer.api("STREAM.MSG.DELETE.S", {"seq": 3})
            await until(lambda: run.counters.removals == 1)
            here.peer.publish(b"S.a")
            async with asyncio.timeout(LIMIT):
                await looked.wait()
            await asyncio.to_thread(server.start)
            await here.bridged.count(4)
            await until(lambda: run.ready)
        assert here.bridged.sequences == [1, 2, 3, 4]
        assert here.bridged.messages[-1][2].count(b"Nats-Last-Sequence: 2\r\n") == 1
