"""Servers and accounts at their limits: rules wait and go on by themselves, and say what they wait for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from bridge import replay
from conformance.servers import NativeServer
from tests.live.copies import Copies, record_of
from tests.live.cut_wire import cut_wire
from tests.live.raw_messages import OpenPeer
from tests.live.sidecar_process import Load, Scene
from tests.live.sidecars import running, settings_for
from tests.live.until import until

Servers = Callable[..., NativeServer]

ROOM = 400_000  # bytes
ACCOUNT_LIMIT = f"""
accounts {{A: {{jetstream: {{max_file: {ROOM}, max_mem: 10MB}}, users: [{{user: a, password: a}}]}}}}
no_auth_user: a
"""
SERVER_LIMIT = f"jetstream: {{max_memory_store: {ROOM}, max_file_store: 10MB}}"


@pytest.mark.parametrize(
    ("storage", "config", "said"),
    [
        ("file", ACCOUNT_LIMIT, "resource limits exceeded for account"),
        ("memory", SERVER_LIMIT, "insufficient resources"),
    ],
)
async def test_copying_waits_for_room(
    storage: str, config: str, said: str, twin_version: str, native_server: Servers, raw_peer: OpenPeer
) -> None:
    async with native_server("2.15.1") as origin, native_server(twin_version, config=config) as full:
        here = await Copies.make(
            await raw_peer(origin.url), "S", target_peer=await raw_peer(full.url), target={"storage": storage}
        )
        await Load(here.peer, here.name).burst(5000)
        connections = {"default": {"servers": [full.url]}, "there": {"servers": [origin.url]}}
        got: list[int] = []
        settings = settings_for("", here.rule(entry={"from": "there"}), connections=connections)
        with capture_logs() as logs:
            async with running(settings) as bridge:
                (run,) = bridge.runs
                await until(lambda: run.counters.as_dict()["waits"] == 1)
                assert not run.ready
                while len(got) < 5000:
                    await here.holds(min(1500, 5000 - len(got)))
                    stored = await here.stored()
                    got += [record_of(message).sequence for message in stored]
                    await here.target_peer.api(f"STREAM.PURGE.{here.target}", {"seq": stored[-1].sequence + 1})
                await until(lambda: run.ready)
                counted = run.counters.as_dict()
                assert (counted["copied"], counted["rejected"], counted["duplicates"]) == (5000, 0, 0)
        (waiting,) = (entry for entry in logs if entry["event"] == "copying.waits")
        assert waiting["server_says"] == said
    assert sorted(got) == list(range(1, 5001))


@pytest.mark.parametrize("delivery", ["at_most_once", "at_least_once"])
async def test_a_gap_is_read_again_when_the_account_takes_another_consumer(
    delivery: str, twin_version: str, native_server: Servers, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "HEARTBEAT", 0.2)
    async with native_server(twin_version, config="") as server, cut_wire(server.url) as wire:
        peer = await raw_peer(server.url)
        here = await Scene.make(peer, "S", max_consumers=2)
        target = await raw_peer(server.url)
        async with running(settings_for(wire.url, here.rule(delivery=delivery), dialect="native")) as bridge:
            (run,) = bridge.runs
            await here.load.burst(100)
            await here.bridged.count(100)
            await peer.api("CONSUMER.DURABLE.CREATE.S.other", {"stream_name": "S", "config": {"durable_name": "other", "ack_policy": "none"}})
            for _ in range(20):
                wire.hold_back()
                burst = here.load.burst(3000)
                import asyncio
                t = asyncio.create_task(burst)
                before = run.counters.received
                await until(lambda: run.counters.received > before)
                wire.cut()
                await t
                wire.let_through()
                await until(lambda: run.ready or run.error is not None)
                print(run.counters.as_dict(), run.ready, run.error)
                if run.error: break
