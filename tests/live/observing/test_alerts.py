"""Each alert at the fault that it is about: it fires on what a real sidecar reports, and not without the fault."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from nats_bridge.app.sidecar import Sidecar
from nats_bridge.client.tasks import end_tasks
from nats_bridge.rules.leadership.lease_store import bucket_config
from nats_transforms import tested_versions
from tests.live.copies import Copies
from tests.live.leadership.leases import LONG
from tests.live.observing.alert_rules import ALERTS, Look, fires
from tests.live.observing.metrics_endpoint import scrape
from tests.live.operations.reloading import reloading
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, Servers, SharedServers
from tests.live.sidecar_process import Scene
from tests.live.sidecars import running, settings_for
from tests.live.until import until

VERSION = "2.15.3"
FREE: dict[str, Any] = {"http": {"listen": "127.0.0.1:0"}}
PAGE = (Path(__file__).parents[3] / "docs/runbooks.md").read_text("utf-8")
TRIED_ELSEWHERE = {
    "NatsBridgeLostMessages": "copying/test_copying_work_queues",
    "NatsBridgeOutOfOrder": "copying/test_copying_far",
    "NatsBridgeMessagesInDoubt": "operations/test_ends",
}
"""Faults that take a scene of their own: the test there asserts the counter that the alert is about."""


async def look(*sidecars: Sidecar, namespace: str = "one") -> Look:
    return Look.of(time.time(), *[await scrape(sidecar) for sidecar in sidecars], namespace=namespace)


def rules(found: list[dict[str, str]]) -> list[str]:
    return [labels["rule"] for labels in found]


def test_every_alert_has_its_part_of_the_runbook() -> None:
    parts = dict(re.findall(r"^## (\w+)\n\n(.*?)(?=\n## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
    assert list(parts) == list(ALERTS)
    for name, alert in ALERTS.items():
        assert alert["annotations"]["runbook_url"].endswith(f"/runbooks.html#{name.lower()}")
        assert re.findall(r"^\*\*(\w+)\*\*: ", parts[name], re.MULTILINE) == ["Means", "Look", "Do"], name


def test_every_alert_is_tried() -> None:
    tried = set(re.findall(r'fires\(\s*"(\w+)"', Path(__file__).read_text("utf-8")))
    assert tried | set(TRIED_ELSEWHERE) == set(ALERTS)
    for name, module in TRIED_ELSEWHERE.items():
        (counter,) = re.findall(r"nats_bridge_(\w+)_messages_total", ALERTS[name]["expr"])
        assert f'"{counter}"] == ' in (Path(__file__).parents[1] / f"{module}.py").read_text("utf-8")


async def test_a_sidecar_that_ended(servers: SharedServers, unique_name: Name, raw_peer: OpenPeer) -> None:
    url = await servers.url(VERSION)
    here = await Scene.make(await raw_peer(url), unique_name("down"))
    async with running(settings_for(url, here.rule(), **FREE)) as bridge:
        assert not fires("NatsBridgeDown", await look(bridge))
        await bridge.stop()
        with pytest.raises(aiohttp.ClientConnectionError):
            await scrape(bridge)
    (labels,) = fires("NatsBridgeDown", Look.of(time.time(), None))
    assert labels["instance"] == "one-0"


async def test_a_sidecar_that_waits_for_its_server(newest_version: str, native_server: Servers) -> None:
    server = native_server(newest_version)
    await asyncio.to_thread(server.start)
    await asyncio.to_thread(server.stop)
    rule = {"name": "rule", "stream": "S", "republish": {"src": "s.>", "dest": "bridged.s.>"}}
    sidecar = Sidecar(settings_for(server.url, rule, **FREE))
    starting = asyncio.create_task(sidecar.start())
    try:
        await until(lambda: sidecar.http is not None)
        (labels,) = fires("NatsBridgeNotStarted", await look(sidecar))
        assert labels["instance"] == "one-0"
        await asyncio.to_thread(server.start)
        await starting
        assert not fires("NatsBridgeNotStarted", await look(sidecar))
    finally:
        await end_tasks(starting)
        await sidecar.stop()


def test_a_release_without_targets() -> None:
    nothing, one, two = Look.of(0), Look.of(0, None), Look.of(0, None, namespace="two")
    assert fires("NatsBridgeAbsent", nothing) == [{}]
    assert not fires("NatsBridgeAbsent", one)
    assert fires("NatsBridgeAbsent", one, one | two) == [{"namespace": "two", "job": "nats-bridge"}]
    assert not fires("NatsBridgeAbsent", one | two)


async def test_a_target_that_is_away_for_a_while(native_server: Servers, raw_peer: OpenPeer) -> None:
    async with native_server(VERSION) as source, native_server(VERSION) as target:
        peer = await raw_peer(source.url)
        here = await Copies.make(peer, "S", target_peer=await raw_peer(target.url), source={"max_msgs": 200})
        connections = {"default": {"servers": [target.url]}, "there": {"servers": [source.url]}}
        settings = settings_for("", here.rule(entry={"from": "there"}), connections=connections, **FREE)
        async with running(settings) as bridge:
            metrics, connection = bridge.supervisors[0].metrics, bridge.connections["default"]
            for _ in range(100):
                await peer.store(b"S.s")
            await until(lambda: metrics.totals()["received"] == 100 and metrics.in_flight() == 0)
            good = await look(bridge)
            assert not fires("NatsBridgeRuleNotReady", good)
            assert not fires("NatsBridgeConnectionDown", good)
            assert not fires("NatsBridgeLagging", good, threshold=0.0)
            assert not fires("NatsBridgeStuck", Look(good.at + 121, good.samples))

            await asyncio.to_thread(target.stop)
            for _ in range(120):
                await peer.store(b"S.s")  # the first 20 are removed
            await until(lambda: metrics.headroom() == 80 and not connection.client.is_connected)
            first = await look(bridge)
            for _ in range(5):
                await peer.store(b"S.s")
            await until(lambda: metrics.headroom() == 75 and bool(metrics.lag_seconds()))
            assert not bridge.runs[0].ready
            away = await look(bridge)
            assert rules(fires("NatsBridgeRuleNotReady", away)) == ["rule"]
            assert [labels["connection"] for labels in fires("NatsBridgeConnectionDown", away)] == ["default"]
            assert rules(fires("NatsBridgeLagging", away, threshold=0.0)) == ["rule"]
            assert rules(fires("NatsBridgeStuck", Look(away.at + 121, away.samples))) == ["rule"]
            # As if the five had come within ten seconds: how long the test took does not count.
            soon = Look(first.at + 10, away.samples)
            assert rules(fires("NatsBridgeRemovalNear", soon, first)) == ["rule"]
            assert not fires("NatsBridgeRemovalNear", soon, Look(first.at, away.samples))

            await asyncio.to_thread(target.start)
            await until(lambda: connection.reconnects == 1)
            lost = fires("NatsBridgeReconnectsOften", await look(bridge), good, threshold=0.0)
            assert [labels["connection"] for labels in lost] == ["default"]


async def test_a_server_that_is_newer_than_the_table(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = await servers.url(VERSION)
    here = await Scene.make(await raw_peer(url), unique_name("newer"))
    async with running(settings_for(url, here.rule(), **FREE)) as bridge:
        assert not fires("NatsBridgeUntestedServer", await look(bridge))
    monkeypatch.setattr(tested_versions, "NEWEST_PATCHES", {(2, 9): 25})
    async with running(settings_for(url, here.rule(), **FREE)) as bridge:
        (labels,) = fires("NatsBridgeUntestedServer", await look(bridge))
    assert labels["connection"] == "default"


async def test_a_target_whose_answers_take_their_time(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(VERSION)
    here = await Copies.make(await raw_peer(url), unique_name("slow"))
    async with running(settings_for(url, here.rule(), **FREE)) as bridge:
        metrics = bridge.supervisors[0].metrics
        await until(lambda: bridge.supervisors[0].state == "ready")
        before = await look(bridge)
        await here.peer.store(f"{here.name}.s".encode())
        await here.holds(1)
        await until(lambda: metrics.in_flight() == 0 and metrics.totals()["received"] == 1)
        after = await look(bridge)
    # Any time is too long here: none is waited for.
    assert rules(fires("NatsBridgeSlowDeliveries", after, before, threshold=0.0)) == ["rule"]
    assert not fires("NatsBridgeSlowDeliveries", Look(after.at + 1, after.samples), after, threshold=0.0)


async def test_a_source_that_does_not_answer_has_an_unknown_lag(native_server: Servers, raw_peer: OpenPeer) -> None:
    async with native_server(VERSION) as server:
        here = await Scene.make(await raw_peer(server.url), "S")
        async with running(settings_for(server.url, here.rule(), **FREE)) as bridge:
            await until(lambda: bridge.supervisors[0].metrics.lag_messages() == 0)
            assert not fires("NatsBridgeLagUnknown", await look(bridge))
            await asyncio.to_thread(server.stop)
            await until(lambda: bridge.supervisors[0].metrics.lag_messages() is None)
            assert rules(fires("NatsBridgeLagUnknown", await look(bridge))) == ["rule"]


async def test_no_replica_leads(servers: SharedServers, unique_name: Name, raw_peer: OpenPeer) -> None:
    url = await servers.url(VERSION)
    peer = await raw_peer(url)
    here = await Scene.make(peer, unique_name("unread"))
    bucket = f"L{here.name}"
    await peer.create_stream(**bucket_config(bucket, 1))
    # A process that Prometheus does not know holds the lease.
    record = {"holder": "elsewhere", "term": 1, "beat": 1, "ttl": LONG}
    await peer.store(f"$KV.{bucket}.lease.nats-bridge.rule".encode(), json.dumps(record).encode())
    settings = settings_for(url, here.rule(), leadership={"bucket": bucket, "ttl": LONG}, **FREE)
    async with running(settings) as bridge:
        await until(lambda: bridge.supervisors[0].state == "standby")
        assert rules(fires("NatsBridgeNoLeader", await look(bridge))) == ["rule"]
        async with running(settings_for(url, here.rule(durable=False), **FREE)) as other:
            both = await look(bridge) | await look(other, namespace="two")
        assert [labels["namespace"] for labels in fires("NatsBridgeNoLeader", both)] == ["one"]


async def test_two_replicas_with_buckets_of_their_own(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(VERSION)
    here = await Scene.make(await raw_peer(url), unique_name("two"))
    first, second = (
        settings_for(url, here.rule(durable=False), leadership={"bucket": f"{letter}{here.name}"}, **FREE)
        for letter in "AB"
    )
    async with running(first) as one, running(second) as other:
        await until(lambda: {one.supervisors[0].state, other.supervisors[0].state} == {"ready"})
        assert not fires("NatsBridgeTwoLeaders", await look(one))
        assert not fires("NatsBridgeTwoLeaders", await look(one) | await look(other, namespace="two"))
        assert not fires("NatsBridgeNoLeader", await look(one, other))
        assert rules(fires("NatsBridgeTwoLeaders", await look(one, other))) == ["rule"]


async def test_a_recreated_source_and_a_message_that_is_too_large(native_server: Servers, raw_peer: OpenPeer) -> None:
    async with native_server(VERSION, config="max_payload: 1000") as server:
        # In memory: a file store that is created right behind its deletion may hold the old messages.
        here = await Scene.make(await raw_peer(server.url), "S", storage="memory")
        config = (await here.peer.api("STREAM.INFO.S"))["config"]
        async with running(settings_for(server.url, here.rule(), **FREE)) as bridge:
            await here.load.burst(10)
            await here.bridged.count(10)
            before = await look(bridge)
            assert not fires("NatsBridgeDroppingMessages", before, before)
            await here.peer.store(b"S.s", b"x" * 990)  # with headers, more than the server takes
            await until(lambda: bridge.runs[0].counters.too_large == 1)
            (dropped,) = fires("NatsBridgeDroppingMessages", await look(bridge), before)
            assert (dropped["rule"], dropped["reason"]) == ("rule", "too_large")
            assert not fires("NatsBridgeSourceRecreated", await look(bridge), before)
            await here.peer.api("STREAM.DELETE.S")
            await here.peer.create_stream(**config)
            await here.load.burst(1)
            await until(lambda: bridge.runs[0].counters.recreated_streams == 1)
            assert rules(fires("NatsBridgeSourceRecreated", await look(bridge), before)) == ["rule"]


async def test_a_native_copy_that_is_stalled(native_server: Servers, raw_peer: OpenPeer) -> None:
    async with native_server(VERSION) as server:
        peer = await raw_peer(server.url)
        await peer.create_stream(name="S", subjects=["S.>"])
        await peer.create_stream(name="T", sources=[{"name": "S"}], max_msgs=10, discard="new")
        rule = {"name": "rule", "kind": "watch", "interval": 0.1, "stalled_after": 1}
        async with running(settings_for(server.url, rule, **FREE)) as bridge:
            await until(lambda: [copy["condition"] for copy in bridge.runs[0].status()["copies"]] == ["complete"])
            assert not fires("NatsBridgeCopyStalled", await look(bridge))
            for _ in range(15):
                await peer.store(b"S.s")
            await until(lambda: bridge.runs[0].counters.stalls == 1)
            (labels,) = fires("NatsBridgeCopyStalled", await look(bridge))
            assert (labels["rule"], labels["stream"], labels["source"]) == ("rule", "T", "S")


async def test_a_configuration_that_is_refused(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url(VERSION)
    here = await Scene.make(await raw_peer(url), unique_name("refused"))
    async with reloading(url, tmp_path, here.rule(), **FREE) as bridge:
        before = await look(bridge.sidecar)
        await bridge.applied(here.rule(exclude=["nothing.here"]), **FREE)
        assert not fires("NatsBridgeReloadRefused", await look(bridge.sidecar), before)
        await bridge.reload(here.rule(exclude=["not..valid"]), **FREE)
        assert fires("NatsBridgeReloadRefused", await look(bridge.sidecar), before)
