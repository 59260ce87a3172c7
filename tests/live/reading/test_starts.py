"""Where a rule begins, several rules at once, two servers, and what a running rule meets."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

from nats_bridge.errors import RuleRefusedError
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, Servers, SharedServers
from tests.live.sidecar_process import Scene, Seen, differing, sidecar_processes
from tests.live.sidecars import running, settings_for
from tests.live.tiers import OLDEST_AND_NEWEST, by_turns
from tests.live.until import LIMIT, until


@by_turns(
    "twin_version, start, first, durable",
    OLDEST_AND_NEWEST,
    [("new", 21), ("first", 1), ({"sequence": 8}, 8), ({"sequence": 20}, 20), ({"sequence": 30}, 21), ("time", 12)],
    [True, False],
)
async def test_starts(
    start: object,
    first: int,
    durable: bool,
    twin_version: str,
    servers: SharedServers,
    unique_name: Name,
    raw_peer: OpenPeer,
) -> None:
    url = await servers.url(twin_version)
    here = await Scene.make(await raw_peer(url), unique_name("start"))
    for number in range(20):
        await here.peer.store(f"{here.name}.s{number % 3}".encode())
    if start == "time":
        stored = await here.peer.api(f"STREAM.MSG.GET.{here.name}", {"seq": 12})
        start = {"time": stored["message"]["time"]}
    rule = here.rule(start=start, durable=durable)
    async with running(settings_for(url, rule, dialect="native")) as bridge:
        for number in range(20):
            await here.peer.store(f"{here.name}.s{number % 3}".encode())
        end = await here.end()
        await here.bridged.until_sequence(end)
        await bridge.runs[0].settled()
    assert here.bridged.sequences == list(range(first, end + 1))
    assert differing(here.bridged, here.native) == []


async def test_several_rules_of_one_stream_and_of_several(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(newest_version)
    peer = await raw_peer(url)
    scenes = [await Scene.make(peer, unique_name("several")) for _ in range(3)]
    rules: list[dict[str, Any]] = []
    seen: list[tuple[Scene, Seen]] = []
    for here in scenes:
        for number, delivery in enumerate(("at_most_once", "at_least_once", "at_most_once")):
            prefix = f"{unique_name('out')}"
            seen.append((here, await Seen.of(peer, f"{prefix}.>")))
            rule = here.rule(name=f"{here.name}_{number}", delivery=delivery, durable=number != 2, start="first")
            rules.append(rule | {"republish": {"src": f"{here.name}.>", "dest": f"{prefix}.>"}})
    async with running(settings_for(url, *rules, dialect="native")):
        for here in scenes:
            await here.load.burst(300)
        ends = {here.name: await here.end() for here in scenes}
        for here, bridged in seen:
            await bridged.until_sequence(ends[here.name])
    for here, bridged in seen:
        assert bridged.sequences == list(range(1, ends[here.name] + 1))
        assert differing(bridged, here.native) == []
    assert [len(await here.consumers()) for here in scenes] == [2, 2, 2]


async def test_across_servers_of_different_versions(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    old, new = await servers.url("2.9.10"), await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(old), unique_name("across"), await raw_peer(new))
    connections = {"default": {"servers": [new]}, "old": {"servers": [old]}}
    rule = here.rule(**{"from": "old", "to": "default"})
    async with running(settings_for(new, rule, connections=connections, dialect="native")):
        await here.load.burst(500)
        end = await here.end()
        await here.bridged.until_sequence(end)
    assert here.bridged.sequences == list(range(1, end + 1))
    # The dialect is that of the server that holds the stream: no time stamp header on 2.9.10.
    assert differing(here.bridged, here.native) == []


async def test_the_newest_dialect_gives_an_old_server_the_new_headers(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url("2.9.10")
    here = await Scene.make(await raw_peer(url), unique_name("shim"))
    async with running(settings_for(url, here.rule())):
        end = await here.end()
        await here.bridged.until_sequence(end)
    (message,) = here.bridged.messages
    (native,) = here.native.messages
    assert b"\r\nNats-Time-Stamp: " in message[2]
    assert b"\r\nNats-Time-Stamp: " not in native[2]


async def test_a_refused_publication_ends_the_sidecar(
    native_server: Servers, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    users = (
        "{user: all, password: all},"
        '{user: few, password: few, permissions: {subscribe: ">", publish: {deny: "bridgeS.s3"}}}'
    )
    async with native_server("2.15.3", config=f"authorization: {{users: [{users}]}}") as server:
        password = tmp_path / "password"
        password.write_text("few")
        here = await Scene.make(await raw_peer(server.url.replace("nats://", "nats://all:all@")), "S")
        connection = {"servers": [server.url], "user": "few", "password_file": str(password)}
        rule = here.rule(delivery="at_least_once")
        async with sidecar_processes(tmp_path) as start:
            process = await start(server.url, rule, connections={"default": connection}, fail_fast=True)
            await process.ready()
            for number in (1, 2, 3, 4):
                await here.peer.store(b"S.s%d" % number)
            assert await process.ended() == 2
            said = await process.said("rule.failed")
            assert "the server refuses a publication" in said["reason"]
            assert "bridgeS.s3" in said["reason"]
        # The refused message and what came with it are not acknowledged: the next start has them again.
        (consumer,) = await here.consumers()
        assert consumer["ack_floor"]["stream_seq"] < 3
        assert here.bridged.sequences[:2] == [1, 2]


async def test_messages_larger_than_the_target_takes(
    native_server: Servers, raw_peer: OpenPeer, unique_name: Name
) -> None:
    async with native_server("2.15.3") as source, native_server("2.15.3", config="max_payload: 1000") as target:
        here = await Scene.make(await raw_peer(source.url), "S", await raw_peer(target.url))
        connections = {"default": {"servers": [source.url]}, "target": {"servers": [target.url]}}
        async with running(settings_for(source.url, here.rule(to="target"), connections=connections)) as bridge:
            for size in (10, 995, 5000, 20):
                await here.peer.store(b"S.s", b"x" * size)
            end = await here.end()
            await here.bridged.until_sequence(end)
            assert bridge.runs[0].counters.too_large == 2
            assert bridge.error is None
        assert here.bridged.sequences == [1, 4, 5]
        # The message that was left out still is its successor's predecessor.
        assert differing(here.bridged, here.native) == []


async def test_a_rule_is_not_ready_while_a_server_is_away(native_server: Servers, raw_peer: OpenPeer) -> None:
    async with native_server("2.15.3") as source, native_server("2.15.3") as target:
        here = await Scene.make(await raw_peer(source.url), "S", await raw_peer(target.url))
        connections = {"default": {"servers": [source.url]}, "target": {"servers": [target.url]}}
        async with running(settings_for(source.url, here.rule(to="target"), connections=connections)) as bridge:
            run = bridge.runs[0]
            assert run.ready
            for server in (target, source):
                await asyncio.to_thread(server.stop)
                await until(lambda: not run.ready)
                await asyncio.to_thread(server.start)
                await until(lambda: run.ready)
            assert run.state == "ready"


async def test_a_hangup_without_a_change_changes_nothing(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("hangup"))
    async with sidecar_processes(tmp_path) as start:
        process = await start(url, here.rule())
        await process.ready()
        process.send(signal.SIGHUP)
        await process.said("reload.unchanged")
        end = await here.end()
        await here.bridged.until_sequence(end)
        assert await process.stop() == 0


async def test_a_rule_whose_consumer_is_taken_over_fails(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """Another process takes the consumer over: the first one must not continue as if nothing had happened."""
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("taken"))
    async with running(settings_for(url, here.rule(), fail_fast=True)) as bridge:
        (consumer,) = await here.consumers()
        await here.peer.api(f"CONSUMER.DELETE.{here.name}.nats-bridge_rule")
        theirs = f"{consumer['config']['deliver_subject'].rpartition('.')[0]}.elsewhere"
        config = consumer["config"] | {"deliver_subject": theirs}
        config.pop("metadata", None)
        created = await here.peer.api(
            f"CONSUMER.DURABLE.CREATE.{here.name}.nats-bridge_rule", {"stream_name": here.name, "config": config}
        )
        assert "error" not in created, created
        async with asyncio.timeout(LIMIT):
            await bridge.finished.wait()
        assert isinstance(bridge.error, RuleRefusedError)
        assert "taken over by another process" in str(bridge.error)
