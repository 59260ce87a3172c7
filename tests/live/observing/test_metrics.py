"""`/metrics` of real sidecars on real servers: the values are what happened."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from pathlib import Path

from nats_bridge.telemetry.names import LEADER, METRICS
from tests.live.observing.every_kind import EveryKind
from tests.live.observing.metrics_endpoint import Scrape, scrape
from tests.live.operations.reloading import reloading
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, Servers, SharedServers
from tests.live.sidecar_process import Scene
from tests.live.sidecars import running, settings_for
from tests.live.until import until

FREE = {"http": {"listen": "127.0.0.1:0"}}
BLOCK = b"NATS/1.0\r\nA: 1\r\n\r\n"
MESSAGES = 30


def of(scrape: Scrape, name: str, rule: str, kind: str = "", **labels: str) -> float:
    return scrape.value(name, rule=rule, kind=kind or rule, **labels)


async def test_every_kind_of_rule_reports_what_it_did(
    native_server: Servers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = native_server("2.15.3").start().url
    here = await EveryKind.make(await raw_peer(url), unique_name("metrics"))
    async with running(settings_for(url, *here.rules, **FREE)) as bridge:
        await here.traffic(MESSAGES, BLOCK)
        supervisors = {supervisor.rule.name: supervisor for supervisor in bridge.supervisors}
        await here.done(bridge.supervisors, MESSAGES)
        seen = await scrape(bridge)

    assert seen.content_type.startswith("text/plain; version=")
    reported = {metric for metric in METRICS if metric.prometheus in seen.families}
    assert reported == set(METRICS) - {LEADER}
    for metric in reported:
        family = seen.families[metric.prometheus]
        assert (family.type, family.documentation) == (metric.kind, metric.help)
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(metric.labels)
    of_copies = {name for name in seen.families if name.startswith("nats_bridge_watched_")}  # these name streams
    assert not any(
        here.name in value
        for name, family in seen.families.items()
        for s in family.samples
        for value in s.labels.values()
        if name not in of_copies
    )
    copy = {"stream": f"N{here.name}", "source": here.name, "entry": "mirror"}
    assert of(seen, "watched_missing_messages", "watch", **copy) == 0
    assert of(seen, "watched_stalled_seconds", "watch", **copy) == 0
    assert of(seen, "watched_state", "watch", state="complete", **copy) == 1
    assert of(seen, "events_total", "watch", event="looks") >= 1

    each = len(BLOCK) + len(b"payload")
    for rule, kind, received, sent in (
        ("republish", "republish", MESSAGES + 1, MESSAGES),
        ("at-least-once", "republish", MESSAGES + 1, MESSAGES + 1),
        ("sources", "sources", MESSAGES + 1, MESSAGES + 1),
        ("mirror", "mirror", MESSAGES + 1, MESSAGES + 1),
        ("kv_sources", "kv_sources", MESSAGES, MESSAGES),
        ("subject_transform", "subject_transform", MESSAGES, MESSAGES),
    ):
        assert of(seen, "received_messages_total", rule, kind) == received
        assert of(seen, "sent_messages_total", rule, kind) == sent
        assert of(seen, "received_bytes_total", rule, kind) == received * each
        assert of(seen, "sent_bytes_total", rule, kind) >= sent * each
    assert of(seen, "received_messages_total", "advisories") == 1
    assert of(seen, "sent_messages_total", "advisories") == 1
    assert of(seen, "events_total", "advisories", event="attached") == 1
    assert of(seen, "dropped_messages_total", "republish", reason="unmatched") == 1
    assert of(seen, "dropped_messages_total", "at-least-once", "republish", reason="unmatched") == 0

    for rule, supervisor in supervisors.items():
        kind = supervisor.rule.kind
        assert of(seen, "rule_ready", rule, kind) == 1
        assert of(seen, "rule_state", rule, kind, state="ready") == 1
        assert of(seen, "rule_state", rule, kind, state="failed") == 0
        assert of(seen, "in_flight_messages", rule, kind) == 0
        if kind != "watch":
            assert of(seen, "publish_duration_seconds_count", rule, kind) >= 1
            assert of(seen, "resumed_total", rule, kind) == 0
        assert seen.value("start_time_seconds") <= of(seen, "progress_timestamp_seconds", rule, kind)
        if kind not in ("subject_transform", "advisories", "watch"):
            assert of(seen, "lag_messages", rule, kind) == 0
            assert of(seen, "lag_seconds", rule, kind) == 0
            assert of(seen, "lost_messages_total", rule, kind) == 0
        if kind not in ("subject_transform", "watch"):
            count = of(seen, "end_to_end_latency_seconds_count", rule, kind)
            assert 1 <= count <= MESSAGES + 1
            assert of(seen, "end_to_end_latency_seconds_bucket", rule, kind, le="+Inf") == count
            assert of(seen, "end_to_end_latency_seconds_bucket", rule, kind, le="3600.0") == count
    assert (seen.value("ready"), seen.value("connection_up", connection="default")) == (1, 1)
    assert seen.value("build_info", version=version("nats-bridge")) == 1
    assert seen.value("config_reloads_total", result="refused") == 0
    assert seen.samples["process_resident_memory_bytes", frozenset()] > 0


async def test_open_metrics_for_those_who_ask(servers: SharedServers, unique_name: Name, raw_peer: OpenPeer) -> None:
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("open"))
    async with running(settings_for(url, here.rule(), **FREE)) as bridge:
        await here.load.burst(5)
        await here.bridged.count(5)
        seen = await scrape(bridge, "application/openmetrics-text; version=1.0.0")
        assert seen.content_type.startswith("application/openmetrics-text")
        assert of(seen, "sent_messages_total", "rule", "republish") == 5
        assert seen.text.endswith("# EOF\n")


async def test_no_counter_falls_over_an_outage_and_the_outage_shows(native_server: Servers, raw_peer: OpenPeer) -> None:
    async with native_server("2.15.3") as server:
        here = await Scene.make(await raw_peer(server.url), "S")
        async with running(settings_for(server.url, here.rule(delivery="at_least_once"), **FREE)) as bridge:
            await here.load.burst(100)
            await here.bridged.count(100)
            before = await scrape(bridge)
            await asyncio.to_thread(server.stop)
            await until(lambda: not bridge.connections["default"].client.is_connected)
            during = await scrape(bridge)
            assert during.value("connection_up", connection="default") == 0
            assert (during.value("ready"), of(during, "rule_ready", "rule", "republish")) == (0, 0)
            await asyncio.to_thread(server.start)
            await until(lambda: bridge.supervisors[0].ready)
            peer = await raw_peer(server.url)
            again = await peer.collect("bridgeS.>")
            await peer.store(b"S.after")
            await again.count(1)
            await until(lambda: bridge.supervisors[0].metrics.in_flight() == 0)
            after = await scrape(bridge)
        for earlier, later in ((before, during), (during, after)):
            fallen = {key for key, value in earlier.counters.items() if later.samples[key] < value}
            assert not fallen
        assert after.value("connection_up", connection="default") == 1
        assert after.value("connection_reconnects_total", connection="default") == 1
        assert of(after, "resumed_total", "rule", "republish") == 1
        assert of(after, "sent_messages_total", "rule", "republish") >= 101


async def test_counters_continue_over_changed_configurations(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("reloads"))
    async with reloading(url, tmp_path, here.rule(), **FREE) as bridge:
        await here.load.burst(50)
        await here.bridged.count(50)
        await until(lambda: bridge.supervisor("rule").metrics.in_flight() == 0)
        before = await scrape(bridge.sidecar)
        await bridge.applied(here.rule(exclude=["nothing.here"]), **FREE)
        between = await scrape(bridge.sidecar)
        await here.load.burst(50)
        await here.bridged.count(100)
        refused = await bridge.reload(here.rule(exclude=["not..valid"]), **FREE)
        assert refused.result == "refused"
        await until(lambda: bridge.supervisor("rule").metrics.in_flight() == 0)
        after = await scrape(bridge.sidecar)
    for earlier, later in ((before, between), (between, after)):
        assert not {key for key, value in earlier.counters.items() if later.samples[key] < value}
    reported = [of(seen, "sent_messages_total", "rule", "republish") for seen in (before, between, after)]
    assert reported == [50, 50, 100]
    assert of(after, "received_bytes_total", "rule", "republish") > of(
        before, "received_bytes_total", "rule", "republish"
    )
    assert [after.value("config_reloads_total", result=result) for result in ("applied", "refused")] == [1, 1]


async def test_of_two_replicas_one_leads(servers: SharedServers, unique_name: Name, raw_peer: OpenPeer) -> None:
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("replicas"))
    settings = settings_for(url, here.rule(), **FREE, leadership={"bucket": f"L{here.name}"})
    async with running(settings) as first:
        await until(lambda: first.supervisors[0].state == "ready")
        async with running(settings) as second:
            await until(lambda: second.supervisors[0].ready)  # it has seen the leader renew its lease
            leading, on_standby = await scrape(first), await scrape(second)
            assert [of(seen, "leader", "rule", "republish") for seen in (leading, on_standby)] == [1, 0]
            assert [of(seen, "rule_ready", "rule", "republish") for seen in (leading, on_standby)] == [1, 1]
            assert of(on_standby, "rule_state", "rule", "republish", state="standby") == 1
            await here.load.burst(10)
            await here.bridged.count(10)
            await until(lambda: first.supervisors[0].metrics.in_flight() == 0)
            await first.stop()
            await until(lambda: second.supervisors[0].state == "ready")
            await here.load.burst(10)
            await here.bridged.count(20)
            took_over = await scrape(second)
            assert of(took_over, "leader", "rule", "republish") == 1
            assert of(took_over, "received_messages_total", "rule", "republish") == 10


async def test_what_waits_is_lag_and_what_was_sent_is_in_flight(native_server: Servers, raw_peer: OpenPeer) -> None:
    async with native_server("2.15.3") as source, native_server("2.15.3") as target:
        here = await Scene.make(await raw_peer(source.url), "S", await raw_peer(target.url))
        connections = {"default": {"servers": [source.url]}, "target": {"servers": [target.url]}}
        async with running(settings_for(source.url, here.rule(to="target"), connections=connections, **FREE)) as bridge:
            await asyncio.to_thread(target.stop)
            await until(lambda: not bridge.connections["target"].client.is_connected)
            await here.load.burst(500)
            metrics = bridge.supervisors[0].metrics
            await until(lambda: metrics.in_flight() > 0)
            seen = await scrape(bridge)
            in_flight_now = of(seen, "in_flight_messages", "rule", "republish")
            # The server delivers no more than the first read while nothing is answered; the rest is lag.
            assert in_flight_now + of(seen, "lag_messages", "rule", "republish") <= 500
            assert in_flight_now == of(seen, "received_messages_total", "rule", "republish")
            assert of(seen, "lag_seconds", "rule", "republish") > 0
            await asyncio.to_thread(target.start)
            await until(lambda: bridge.supervisors[0].counters()["received"] == 500 and metrics.in_flight() == 0)
            seen = await scrape(bridge)
            assert of(seen, "lag_messages", "rule", "republish") == 0
            assert of(seen, "lag_seconds", "rule", "republish") == 0
            assert of(seen, "sent_messages_total", "rule", "republish") == 500
