"""Streams that are purged, edited or sealed while rules read them and write to them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import structlog

from tests.live.copies import Copies
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecar_process import Load, Scene
from tests.live.sidecars import running, settings_for
from tests.live.tiers import OLDEST_AND_NEWEST, by_turns
from tests.live.until import until

KINDS: list[dict[str, Any]] = [{"delivery": "at_most_once"}, {"delivery": "at_least_once"}, {"durable": False}]


@by_turns("twin_version, kind", OLDEST_AND_NEWEST, KINDS)
async def test_a_source_that_is_purged_edited_and_sealed(
    kind: dict[str, Any], twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(twin_version)
    here = await Scene.make(await raw_peer(url), unique_name("changes"))
    config = (await here.peer.api(f"STREAM.INFO.{here.name}"))["config"]
    # Without a filter every sequence is accounted for.
    everything = here.rule(republish={"src": ">", "dest": f"bridge{here.name}.>"}, **kind)
    settings = settings_for(url, everything, dialect="native")
    async with running(settings) as bridge:
        (run,) = bridge.runs
        for _ in range(5):
            publishing = asyncio.create_task(here.load.burst(1000))
            await here.bridged.count(len(here.bridged.messages) + 1)
            assert (await here.peer.api(f"STREAM.PURGE.{here.name}"))["success"]
            await publishing
        end = await here.end()
        await here.bridged.until_sequence(end)
        counted = run.counters.as_dict()
        await until(lambda: sum(run.counters.as_dict()[name] for name in ("received", "vanished", "lost")) == end)
        assert here.bridged.sequences == sorted(set(here.bridged.sequences))
        assert counted["republished"] == len(here.bridged.sequences)

        edited = config | {"subjects": [f"{here.name}.>", f"more{here.name}.>"], "max_msgs": 500}
        assert "error" not in await here.peer.api(f"STREAM.UPDATE.{here.name}", edited)
        await here.load.burst(1000)
        end = await here.end()
        await here.bridged.until_sequence(end)

        answer = await here.peer.api(f"STREAM.UPDATE.{here.name}", edited | {"sealed": True})
        assert "error" not in answer, answer
        refused = await here.peer.store(f"{here.name}.s1".encode())
        assert refused["error"]["err_code"] == 10109
        await until(lambda: run.ready)
    assert run.counters.as_dict()["republished"] == len(here.bridged.sequences)
    # A sealed stream is still one that a rule can start with.
    async with running(settings) as bridge:
        assert bridge.runs[0].ready


@pytest.mark.parametrize("on_rejected", ["stop", {"skip": "letters"}])
async def test_a_sealed_target_stops_the_rule_and_nothing_is_taken_for_rejected(
    on_rejected: Any, twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(twin_version)
    here = await Copies.make(await raw_peer(url), unique_name("sealed"))
    letters = f"letters{here.name}"
    await here.peer.create_stream(name=letters, subjects=[letters])
    if on_rejected != "stop":
        on_rejected = {"skip": letters}
    await Load(here.peer, here.name).burst(100)
    config = (await here.peer.api(f"STREAM.INFO.{here.target}"))["config"]
    async with running(settings_for(url, here.rule(on_rejected=on_rejected))) as bridge:
        await here.holds(100)
        assert "error" not in await here.peer.api(f"STREAM.UPDATE.{here.target}", config | {"sealed": True})
        await Load(here.peer, here.name).burst(100)
        await until(lambda: bridge.error is not None)
        assert f"stream '{here.target}' is sealed: it accepts no more messages" in str(bridge.error)
    assert await here.source_sequences() == list(range(1, 101))
    assert (await here.peer.api(f"STREAM.INFO.{letters}"))["state"]["messages"] == 0


@pytest.mark.usefixtures("quick_heartbeats")
@pytest.mark.parametrize("kind", ["republish", "sources"])
async def test_an_ephemeral_consumer_that_is_deleted_is_recreated(
    kind: str, twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(twin_version)
    peer = await raw_peer(url)
    here = await Copies.make(peer, unique_name("fleeting"))
    load = Load(peer, here.name)
    republish = {"stream": here.name, "durable": False, "republish": {"src": ">", "dest": f"out{here.name}.>"}}
    rule = {"name": "rule", **republish} if kind == "republish" else here.rule()
    async with running(settings_for(url, rule)) as bridge:
        (run,) = bridge.runs
        for turn in range(1, 3):
            await load.burst(500)
            (consumer,) = (await peer.api(f"CONSUMER.LIST.{here.name}"))["consumers"]
            assert (await peer.api(f"CONSUMER.DELETE.{here.name}.{consumer['name']}"))["success"]
            await load.burst(500)
            await until(lambda turn=turn: run.counters.as_dict()["recreated_consumers"] == turn)  # type: ignore[misc]
            await until(lambda: run.counters.as_dict()["received"] == load.published)
        await until(lambda: run.ready)
        assert run.counters.as_dict()["lost"] == 0
    if kind == "sources":
        await here.are_exact()


async def _recreate(here: Scene, config: dict[str, Any], run: Any) -> None:
    """Recreate the stream, and wait until the rule reads the new one."""
    assert (await here.peer.api(f"STREAM.DELETE.{here.name}"))["success"]
    await here.peer.create_stream(**config)
    await until(lambda: run.counters.recreated_streams == 1)

    async def reads() -> bool:
        return "error" not in await here.durable()

    await until(reads)
    here.bridged.messages.clear()
    here.bridged.newest = 0


@pytest.mark.parametrize("version", ["2.9.10", "2.10.27", "2.15.3"])
async def test_an_acknowledgement_counts_only_in_its_stream(
    version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """2.9.10 takes the position of an empty stream from it, and 2.10.27 does not answer."""
    url = await servers.url(version)
    here = await Scene.make(await raw_peer(url), unique_name("again"))
    config = (await here.peer.api(f"STREAM.INFO.{here.name}"))["config"]
    settings = settings_for(url, here.rule(delivery="at_least_once"), dialect="native")
    with structlog.testing.capture_logs() as log:
        async with running(settings) as bridge:
            await here.load.burst(20)
            await here.bridged.until_sequence(20)
            await _recreate(here, config, bridge.runs[0])
    assert {line["event"] for line in log} >= {"rule.stopped"}
    assert not [line for line in log if line["event"] == "rule.drain_incomplete"]
    assert (await here.durable())["ack_floor"]["stream_seq"] == 0
    await here.load.burst(5)
    async with running(settings):
        await here.bridged.until_sequence(5)
    assert here.bridged.sequences == [1, 2, 3, 4, 5]
