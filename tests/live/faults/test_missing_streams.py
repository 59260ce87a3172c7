"""A stream that a rule needs and that is not there: the rule waits, says so, and starts when it appears."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any, cast

import pytest

from nats_bridge.app.preflight import check_server
from nats_bridge.client.connection import Connection
from nats_bridge.consuming.missing_streams import appeared
from nats_bridge.errors import StreamMissingError
from nats_bridge.kinds.republish.run import RepublishRun
from nats_bridge.rules import supervisor
from tests.live.copies import Copies
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, Servers, SharedServers
from tests.live.sidecar_process import Scene, Seen, sidecar_processes
from tests.live.sidecars import running, settings_for
from tests.live.until import until


async def test_a_rule_waits_for_its_stream_while_others_work(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url(newest_version)
    peer = await raw_peer(url)
    here = await Scene.make(peer, unique_name("there"))
    good = here.rule(name="good", durable=False)
    missing = f"{here.name}s"
    late = {"name": "late", "stream": missing, "republish": {"src": ">", "dest": f"late{missing}.>"}, "start": "first"}
    arrived = await Seen.of(peer, f"late{missing}.>")
    async with sidecar_processes(tmp_path) as start:
        process = await start(url, good, late)
        waiting = await process.said("rule.waiting")
        assert waiting["rule"] == "late"
        assert f"rule 'late': stream '{missing}' does not exist on connection 'default'" in waiting["reason"]
        assert re.search(f"(the most similar of [0-9]+ streams:|the account has) {here.name}", waiting["reason"])
        ready = await process.said("sidecar.ready")
        assert (ready["rules"], ready["waiting"]) == (1, 1)
        await here.bridged.until_sequence(await here.end())
        await peer.create_stream(name=missing, subjects=[f"{missing}.>"])
        await peer.store(f"{missing}.x".encode(), b"here")
        await arrived.count(1)
        assert await process.stop() == 0, process.log


@pytest.mark.parametrize("durable", [True, False])
async def test_a_stream_created_during_the_wait_is_republished_from_its_start(
    durable: bool,
    twin_version: str,
    servers: SharedServers,
    unique_name: Name,
    raw_peer: OpenPeer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`start: new` means new since the rule's first start, and all of this stream is."""
    url = await servers.url(twin_version)
    peer, name = await raw_peer(url), unique_name("late")
    arrived, stored = await Seen.of(peer, f"out{name}.>"), asyncio.Event()

    async def appeared_late(connection: Connection, stream: str) -> None:
        await stored.wait()
        await appeared(connection, stream)

    monkeypatch.setattr(supervisor, "appeared", appeared_late)
    rule = {"name": "rule", "stream": name, "republish": {"src": ">", "dest": f"out{name}.>"}, "durable": durable}
    async with running(settings_for(url, rule)) as bridge:
        await until(lambda: bridge.supervisors[0].state == "waiting")
        await peer.create_stream(name=name, subjects=[f"{name}.>"])
        for _ in range(2):
            await peer.store(f"{name}.x".encode(), b"before the rule sees the stream")
        stored.set()
        await arrived.count(2)
        await until(lambda: bridge.supervisors[0].ready)
        await peer.store(f"{name}.x".encode(), b"later")
        await arrived.count(3)
        # A second run of the same sidecar does not begin again.
        assert await bridge.supervisors[0].stop()
        bridge.supervisors[0].resume()
        await until(lambda: bridge.supervisors[0].ready)
        await peer.store(f"{name}.x".encode(), b"last")
        await arrived.count(4)
        assert bridge.supervisors[0].counters()["republished"] == 4


async def test_a_stream_that_is_only_back_is_not_republished_from_its_beginning(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(newest_version)
    peer, name = await raw_peer(url), unique_name("back")
    await peer.create_stream(name=name, subjects=[f"{name}.>"])
    await peer.store(f"{name}.x".encode(), b"1")
    await peer.create_stream(name=f"{name}m", mirror={"name": name})  # holds messages that are older than itself

    async def is_mirrored() -> bool:
        return bool((await peer.api(f"STREAM.INFO.{name}m"))["state"]["messages"])

    await until(is_mirrored)
    settings = settings_for(url, *(_to_out(each) for each in (name, f"{name}m")))
    async with running(settings) as bridge:
        assembly, now = bridge.supervisors[0]._assembly, time.time_ns()

        async def start(rule: int, absent_since_ns: int | None) -> str:
            run = assembly.make_run(settings.rules[rule], absent_since_ns=absent_since_ns)
            await run.check()
            return cast(RepublishRun, run)._start.policy

        assert await start(0, None) == "new"
        assert await start(0, now) == "first"
        assert await start(0, now + 3600 * 10**9) == "new"  # restored: it was created before the wait
        assert await start(1, now) == "new"


def _to_out(stream: str) -> dict[str, Any]:
    return {"name": stream, "stream": stream, "republish": {"src": ">", "dest": f"out{stream}.>"}}


@pytest.mark.usefixtures("quick_heartbeats")
@pytest.mark.parametrize("kind", ["republish", "sources"])
async def test_a_sidecar_whose_stream_was_deleted_drains_at_once(
    kind: str, newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(newest_version)
    here = await Copies.make(await raw_peer(url), unique_name("gone"))
    republish = {"name": "rule", "stream": here.name, "republish": {"src": ">", "dest": f"out{here.name}.>"}}
    async with running(settings_for(url, republish if kind == "republish" else here.rule())) as bridge:
        run = bridge.runs[0]
        await here.peer.store(f"{here.name}.x".encode(), b"1")
        await until(lambda: run.counters.as_dict()["received"] == 1)
        await here.peer.api(f"STREAM.DELETE.{here.name}")
        await until(lambda: not run.ready)
        assert await bridge.stop()  # whether every rule finished, within the time that a drain may take
        assert run.state == "stopped"


async def test_check_says_that_a_stream_is_missing(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("there"))
    rule = {"name": "bad", "stream": f"{here.name}s", "republish": {"src": ">", "dest": "out.>"}}
    (finding,) = [each for each in await check_server(settings_for(url, rule), None) if each.rule == "bad"]
    assert (finding.ok, finding.code) == (False, StreamMissingError.code)
    # Other tests of the server may have streams that are just as similar.
    assert re.search(rf"(the most similar of [0-9]+ streams:|the account has) .*\b{here.name}\b", finding.text)


async def test_few_streams_are_all_named(native_server: Servers, raw_peer: OpenPeer) -> None:
    async with native_server("2.15.3") as server:
        peer = await raw_peer(server.url)
        rule = {"name": "bad", "stream": "FLEETS", "republish": {"src": ">", "dest": "out.>"}}

        async def reported() -> str:
            (finding,) = await check_server(settings_for(server.url, rule), None)
            return finding.text.partition("connection 'default': ")[2]

        assert await reported() == "the account has none"
        for name in ("FLEET", "A", "B", "C", "D"):
            await peer.create_stream(name=name, subjects=[name])
            if name == "A":
                assert await reported() == "the account has FLEET, A"
        assert (await reported()).startswith("the account has FLEET, ")
        await peer.create_stream(name="E", subjects=["E"])
        assert (await reported()).startswith("the most similar of 6 streams: FLEET, ")


@pytest.mark.parametrize("gone", ["source", "target"])
async def test_copying_waits_for_either_stream(
    gone: str, twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(twin_version)
    peer = await raw_peer(url)
    here = Copies(peer, peer, unique_name("late"))
    streams = {"source": here.name, "target": here.target}
    for which, name in streams.items():
        if which != gone:
            await peer.create_stream(name=name, subjects=[f"{name}.>"])
    async with running(settings_for(url, here.rule())) as bridge:
        assert (bridge.supervisors[0].state, bridge.supervisors[0].ready) == ("waiting", False)
        await peer.create_stream(name=streams[gone], subjects=[f"{streams[gone]}.>"])
        await peer.store(f"{here.name}.x".encode(), b"1")
        await here.holds(1)
        await until(lambda: bridge.supervisors[0].ready)
    await here.are_exact()
