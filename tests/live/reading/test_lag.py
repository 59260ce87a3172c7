"""Lag is what the source holds, also where nothing is delivered; an unknown lag is absent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from structlog.testing import capture_logs

from nats_bridge.app.sidecar import Sidecar
from nats_bridge.client.jetstream_api import JetStreamApi
from nats_bridge.client.stream_identity import KnownStream, MessageStamp
from nats_bridge.consuming import lag
from nats_bridge.consuming.lag import StreamPosition, waiting_after
from nats_bridge.kinds.copying.run import CopyRun
from nats_bridge.observability.rule_metrics import RuleMetrics
from nats_conformance.native_servers import NativeServer
from tests.live.conftest import Connect
from tests.live.copies import Copies
from tests.live.leadership.leases import LONG, free
from tests.live.observing.metrics_endpoint import scrape
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecar_process import Scene
from tests.live.sidecars import running, settings_for
from tests.live.until import until

FREE = {"http": {"listen": "127.0.0.1:0"}}
VERSIONS = ["2.9.10", "2.15.3"]


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask soon after the last delivery: the tests await what the answers say, in every state that lasts."""
    for name, seconds in (("EVERY_SECOND", 0.1), ("QUIET", 0.2), ("_AGAIN", 0.2), ("_AGAIN_IDLE", 0.4)):
        monkeypatch.setattr(lag, name, seconds)


async def grows(metrics: RuleMetrics) -> None:
    """Wait until it is known that something waits, and for longer and longer."""
    await until(lambda: bool(metrics.lag_seconds()))
    first = metrics.lag_seconds() or 0.0
    await until(lambda: (metrics.lag_seconds() or 0.0) > first + 0.01)


async def reported(bridge: Sidecar, kind: str) -> dict[str, float]:
    """The rule's lag as Prometheus gets it."""
    seen = await scrape(bridge)
    names = ("lag_messages", "lag_seconds", "in_flight_messages")
    found = {
        name: seen.samples.get((f"nats_bridge_{name}", frozenset({("rule", "rule"), ("kind", kind)}))) for name in names
    }
    return {name: value for name, value in found.items() if value is not None}


async def the_alert_would_fire(bridge: Sidecar, kind: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the metrics would fire the alert rule for lag after its `for`."""
    (group,) = yaml.safe_load((Path(__file__).parents[3] / "k8s" / "monitoring" / "alerts.yaml").read_text("utf-8"))[
        "groups"
    ]
    (text,) = [alert["expr"] for alert in group["rules"] if alert.get("alert") == "NatsBridgeLagging"]
    expression = promql_parser.parse(text)
    assert isinstance(expression, promql_parser.BinaryExpr)
    assert (expression.lhs.name, str(expression.op)) == ("nats_bridge_lag_seconds", ">"), text
    limit, clock = expression.rhs.val, time.time_ns
    assert (await reported(bridge, kind))["lag_seconds"] < limit
    with monkeypatch.context() as later:
        later.setattr(time, "time_ns", lambda: clock() + int(limit * 1e9))
        return (await reported(bridge, kind))["lag_seconds"] > limit


@contextmanager
def stopped(server: NativeServer) -> Iterator[None]:
    server.stop()
    try:
        yield
    finally:
        server.start()


@pytest.mark.parametrize(("version", "delivery"), [("2.9.10", "at_most_once"), ("2.15.3", "at_least_once")])
async def test_a_republish_rule_whose_target_is_away(
    version: str, delivery: str, native_server: Callable[..., NativeServer], raw_peer: OpenPeer
) -> None:
    async with native_server(version) as source, native_server("2.15.3") as target:
        peer = await raw_peer(source.url)
        here = await Scene.make(peer, "S", await raw_peer(target.url))
        connections = {"default": {"servers": [source.url]}, "target": {"servers": [target.url]}}
        rule = here.rule(to="target", delivery=delivery)
        async with running(settings_for(source.url, rule, connections=connections, **FREE)) as bridge:
            metrics = bridge.supervisors[0].metrics
            await until(lambda: metrics.lag_messages() == 0)  # though nothing was ever delivered
            await asyncio.to_thread(target.stop)
            await until(lambda: not bridge.connections["target"].client.is_connected)
            for wanted in (300, 2000):
                while (await peer.store(b"S.a", bytes(1000)))["seq"] < wanted:
                    pass
                await until(lambda: (metrics.lag_messages() or 0) + metrics.in_flight() == wanted)  # noqa: B023
            assert (metrics.lag_messages() or 0) > 0
            await grows(metrics)
            seen = await reported(bridge, "republish")
            assert seen["lag_messages"] + seen["in_flight_messages"] == 2000
            assert seen["lag_seconds"] > 0
            await asyncio.to_thread(target.start)
            await until(lambda: metrics.lag_messages() == 0 and metrics.in_flight() == 0)
            assert metrics.lag_seconds() == 0


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_copying_rule_whose_target_is_away(
    version: str, native_server: Callable[..., NativeServer], raw_peer: OpenPeer
) -> None:
    """There no consumer is left to be asked: the stream is, what was deleted or is not meant left out."""
    async with native_server(version) as source, native_server("2.15.3") as target:
        peer = await raw_peer(source.url)
        here = await Copies.make(peer, "S", target_peer=await raw_peer(target.url))
        connections = {"default": {"servers": [source.url]}, "target": {"servers": [target.url]}}
        rule = here.rule(to="target", entry={"subject_transforms": [{"src": "S.a.>", "dest": "TS.a.>"}]})
        async with running(settings_for(source.url, rule, connections=connections, **FREE)) as bridge:
            metrics = bridge.supervisors[0].metrics
            await until(lambda: metrics.lag_messages() == 0)
            for _ in range(10):
                await peer.store(b"S.a.b")
            await here.holds(10)
            await asyncio.to_thread(target.stop)
            await until(lambda: not bridge.supervisors[0].ready)
            for number in range(100):
                await peer.store(b"S.a.b" if number % 2 else b"S.other")
            await until(lambda: metrics.lag_messages() == 50)
            await peer.api("STREAM.MSG.DELETE.S", {"seq": 110})
            await until(lambda: metrics.lag_messages() == 49)
            await grows(metrics)
            run = bridge.supervisors[0].run
            assert isinstance(run, CopyRun)
            assert [entry["lag_messages"] for entry in run.status()["sources"]] == [49]
            await asyncio.to_thread(target.start)
            await until(lambda: metrics.lag_messages() == 0 and metrics.in_flight() == 0)
            here.target_peer = await raw_peer(target.url)
            await here.holds(59)


async def test_a_full_target(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = await servers.url("2.15.3")
    peer = await raw_peer(url)
    here = await Copies.make(peer, unique_name("full"), target={"discard": "new", "max_msgs": 10})
    subject = f"{here.name}.a".encode()
    async with running(settings_for(url, here.rule(), **FREE)) as bridge:
        metrics = bridge.supervisors[0].metrics
        for wanted in (30, 60):
            while (await peer.store(subject))["seq"] < wanted:
                pass
            await until(lambda: (metrics.lag_messages() or 0) + metrics.in_flight() == wanted - 10)  # noqa: B023
        assert (await reported(bridge, "sources"))["lag_messages"] > 0
        await grows(metrics)
        assert await the_alert_would_fire(bridge, "sources", monkeypatch)
        await peer.api(f"STREAM.UPDATE.{here.target}", (await config_of(here)) | {"max_msgs": -1})
        await here.holds(60)  # a message that goes alone is confirmed before those behind it are in flight
        await until(lambda: metrics.lag_messages() == 0 and metrics.in_flight() == 0)
        assert metrics.lag_seconds() == 0
        await here.are_exact()


async def config_of(here: Copies) -> dict[str, Any]:
    config: dict[str, Any] = (await here.peer.api(f"STREAM.INFO.{here.target}"))["config"]
    return config


async def test_a_source_that_cannot_be_asked_has_no_lag_instead_of_none(
    native_server: Callable[..., NativeServer], raw_peer: OpenPeer
) -> None:
    async with native_server("2.15.3") as source, native_server("2.15.3") as target:
        here = await Scene.make(await raw_peer(source.url), "S", await raw_peer(target.url))
        connections = {"default": {"servers": [source.url]}, "target": {"servers": [target.url]}}
        async with running(settings_for(source.url, here.rule(to="target"), connections=connections, **FREE)) as bridge:
            metrics = bridge.supervisors[0].metrics
            await here.load.burst(5)
            await until(lambda: metrics.lag_messages() == 0 and metrics.in_flight() == 0)
            with stopped(source):
                await until(lambda: metrics.lag_messages() is None)
                assert await reported(bridge, "republish") == {"in_flight_messages": 0}
                assert metrics.as_dict()["lag_seconds"] is None
            await until(lambda: metrics.lag_messages() == 0)


async def test_a_replica_that_took_over_knows_what_waits(
    native_server: Callable[..., NativeServer], raw_peer: OpenPeer
) -> None:
    async with native_server("2.15.3") as source, native_server("2.15.3") as target:
        peer = await raw_peer(source.url)
        here = await Copies.make(
            peer, "S", target_peer=await raw_peer(target.url), target={"discard": "new", "max_msgs": 1}
        )
        connections = {"default": {"servers": [source.url]}, "target": {"servers": [target.url]}}
        rule = here.rule(to="target")
        leadership = {"bucket": "LEASES", "ttl": LONG}
        settings = settings_for(source.url, rule, connections=connections, leadership=leadership, **FREE)
        await free(peer, "LEASES")
        async with running(settings) as first:
            await until(lambda: first.supervisors[0].state == "ready")
            async with running(settings) as second:
                for _ in range(41):
                    await peer.store(b"S.a")
                await until(lambda: not first.supervisors[0].ready)
                assert second.supervisors[0].metrics.lag_messages() is None
                await first.stop()
                metrics = second.supervisors[0].metrics
                await until(lambda: (metrics.lag_messages() or 0) + metrics.in_flight() == 40)
                await grows(metrics)
                assert first.supervisors[0].metrics.lag_messages() is None


@pytest.mark.parametrize("version", VERSIONS)
async def test_what_waits_behind_a_sequence_is_counted(
    version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, connect: Connect
) -> None:
    url = await servers.url(version)
    peer, name = await raw_peer(url), unique_name("behind")
    created = await peer.create_stream(name=name, subjects=[f"{name}.>"])
    api = JetStreamApi((await raw_peer(url)).client, "default")

    async def behind(handled: int, *filters: str, known: KnownStream | None = None, direct: bool = False) -> int | None:
        return await waiting_after(
            api, StreamPosition(name, known or KnownStream.of(created), filters, handled, direct)
        )

    assert [await behind(0), await behind(3)] == [0, None]
    for number in range(10):
        await peer.store(f"{name}.{'ab'[number % 2]}".encode())
    assert [await behind(handled) for handled in (0, 4, 10)] == [10, 6, 0]
    assert [await behind(handled, f"{name}.a") for handled in (0, 4, 9)] == [5, 3, 0]
    assert await behind(8, known=KnownStream("2020-01-01T00:00:00Z", (MessageStamp(8, 1),))) == 10
    eighth = await api.stored_message(name, 8)
    assert eighth is not None
    # Servers before 2.14 change the creation time of a stream.
    assert await behind(8, known=KnownStream("2020-01-01T00:00:00Z", (MessageStamp(8, eighth.time_ns),))) == 2
    await peer.api(f"STREAM.PURGE.{name}", {"seq": 3})
    assert [await behind(0), await behind(4)] == [8, 6]
    await peer.api(f"STREAM.MSG.DELETE.{name}", {"seq": 6})
    assert [await behind(4), await behind(4, direct=True)] == [5, None]
    assert await api.next_message(name, ">", 6) == await api.next_message(name, f"{name}.*", 7)
    assert await api.next_message(name, ">", 11) is None
    assert (await peer.api(f"CONSUMER.NAMES.{name}"))["total"] == 0


async def test_limits_close_to_the_position_are_reported_before_they_pass_it(
    newest_version: str, native_server: Callable[..., NativeServer], raw_peer: OpenPeer
) -> None:
    with native_server(newest_version) as source, native_server(newest_version) as target:
        peer = await raw_peer(source.url)
        here = await Copies.make(peer, "S", target_peer=await raw_peer(target.url), source={"max_msgs": 200})
        connections = {"default": {"servers": [target.url]}, "there": {"servers": [source.url]}}
        rule = here.rule(entry={"from": "there"})
        with capture_logs() as logs:
            async with running(settings_for("", rule, connections=connections)) as bridge:
                (supervisor,) = bridge.supervisors
                for _ in range(100):
                    await peer.store(b"S.s")
                await until(
                    lambda: supervisor.metrics.totals()["received"] == 100 and supervisor.metrics.in_flight() == 0
                )
                with stopped(target):
                    for _ in range(120):
                        await peer.store(b"S.s")  # the first 20 are removed
                    await until(lambda: supervisor.metrics.headroom() == 80)
                    for _ in range(5):
                        await peer.store(b"S.s")
                    await until(lambda: supervisor.metrics.headroom() == 75)
        reported = next(entry for entry in logs if entry["event"] == "rule.removal_near")
        assert (reported["rule"], reported["stream"]) == ("rule", "S")
        assert reported["seconds"] > 0, "before they have passed it"
        assert reported["first_sequence"] <= reported["position"] == 100
