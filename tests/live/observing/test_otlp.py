"""OTLP to a real receiver: metrics and spans of real sidecars; and the producer's trace context."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from nats_bridge.observability.latency import BOUNDS
from nats_bridge.rule_kinds import kind_of
from nats_bridge.telemetry import service
from nats_bridge.telemetry.names import (
    ATTRIBUTES,
    HEADROOM,
    LAG_MESSAGES,
    LAG_SECONDS,
    LEADER,
    METRICS,
    WATCHED_MISSING,
    WATCHED_STALLED,
    WATCHED_STATE,
)
from tests.live.observing.every_kind import EveryKind
from tests.live.observing.otlp_receiver import OtlpReceiver, attributes, otlp_receiver
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecar_process import Scene, differing
from tests.live.sidecars import running, settings_for
from tests.live.stored_messages import stored_messages
from tests.live.until import LIMIT, until

TRACE = "0af7651916cd43dd8448eb211c80319c"
MESSAGES = 12
WHILE_RUNNING = {LEADER, LAG_MESSAGES, LAG_SECONDS, HEADROOM, WATCHED_MISSING, WATCHED_STALLED, WATCHED_STATE}


def traced(number: int, flags: str = "01") -> bytes:
    """A header block of a producer in a trace."""
    return f"NATS/1.0\r\nA:1 \r\ntraceparent: 00-{TRACE}-{number:016x}-{flags}\r\ntracestate: x=1\r\n\r\n".encode()


@pytest.fixture
async def receiver(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OtlpReceiver]:
    async with otlp_receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # nothing listens there: it must not be asked
        # A collection that takes longer than the interval is given up, the last one as well.
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "2000")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
        # The receiver answers: what is left is waited for, however slow the machine is.
        monkeypatch.setattr(service, "CLOSING", LIMIT)
        yield receiver


async def test_metrics_are_exported(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, receiver: OtlpReceiver
) -> None:
    url = await servers.url("2.15.3")
    here = await EveryKind.make(await raw_peer(url), unique_name("otlp"))
    async with running(settings_for(url, *here.rules, name="edge")) as bridge:
        await here.traffic(MESSAGES)
        await until(lambda: receiver.number("messaging.client.sent.messages", rule="mirror") == MESSAGES + 1)
        await until(lambda: receiver.number("messaging.nats.bridge.dropped", rule="republish", reason="unmatched") == 1)
        await here.done(bridge.supervisors, MESSAGES)
        await until(lambda: receiver.number("messaging.nats.bridge.lag.messages", rule="kv_sources") == 0)
        await until(lambda: set(receiver.metrics) == {metric.otel for metric in METRICS} - {LEADER.otel})
        assert receiver.number("messaging.nats.bridge.connection_up", connection="default") == 1
    # One more export comes at the end, when no rule runs.
    assert set(receiver.metrics) == {metric.otel for metric in METRICS} - {metric.otel for metric in WHILE_RUNNING}
    assert receiver.number("messaging.client.consumed.messages", rule="kv_sources") == MESSAGES
    for metric in METRICS:
        if metric in WHILE_RUNNING:
            continue
        reported = receiver.metrics[metric.otel]
        assert (reported.unit, reported.description) == (metric.unit, metric.help)
        data = (
            reported.sum
            if metric.kind == "counter"
            else reported.gauge
            if metric.kind == "gauge"
            else reported.histogram
        )
        assert data.data_points, metric
        for point in data.data_points:
            found = attributes(point.attributes)
            assert found.pop("messaging.system") == "nats"
            named = found.pop("messaging.operation.name", ""), found.pop("messaging.operation.type", "")
            assert named == (metric.operation or ("", ""))
            assert named[0] or not metric.otel.startswith("messaging.client.")
            assert set(found) == {ATTRIBUTES[label] for label in metric.labels}
            assert not any(here.name in str(value) for value in found.values())
    latency = receiver.metrics["messaging.client.operation.duration"].histogram
    for point in latency.data_points:
        assert tuple(point.explicit_bounds) == BOUNDS
        assert point.count == sum(point.bucket_counts)
        # A watch rule handles no messages, so it has none to measure.
        assert point.count > 0 or attributes(point.attributes)["messaging.nats.bridge.kind"] == "watch"
        assert point.time_unix_nano > point.start_time_unix_nano
    assert receiver.resource["service.name"] == "nats-bridge"
    assert receiver.resource["service.instance.id"].startswith("edge@")
    assert receiver.resource["deployment.environment"] == "test"
    assert not receiver.spans


async def test_a_receiver_that_takes_nothing_is_reported_and_delays_nothing(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, receiver: OtlpReceiver
) -> None:
    receiver.answer = 400
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("deaf"))
    with capture_logs() as log:
        async with running(settings_for(url, here.rule())):
            await here.load.burst(10)
            await here.bridged.count(10)
            await until(lambda: any(line["event"] == "telemetry.export_failed" for line in log))
            await here.load.burst(10)
            await here.bridged.count(20)


@pytest.mark.parametrize("trace", ["passthrough", "link", "continue"])
async def test_headers_stay_as_they_are_and_spans_join_the_producer_s_trace(
    trace: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, receiver: OtlpReceiver
) -> None:
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("trace"))
    flags = ["01" if number % 3 else "00" for number in range(1, MESSAGES + 1)]
    sampled = {number for number, flag in enumerate(flags, 1) if flag == "01"}
    async with running(settings_for(url, here.rule(delivery="at_least_once"), telemetry={"trace": trace})):
        for number, flag in enumerate(flags, 1):
            await here.peer.store(f"{here.name}.s".encode(), b"body", traced(number, flag))
        await here.peer.store(f"{here.name}.s".encode(), b"body")
        await here.bridged.count(MESSAGES + 1)
        await here.native.count(MESSAGES + 1)
    assert not differing(here.bridged, here.native)
    assert sum(b"traceparent: 00-" in message[2] for message in here.bridged.messages) == MESSAGES
    spans = receiver.spans
    assert {span.name for span in spans} <= {f"republish {here.name}"}
    if trace == "passthrough":
        assert not spans
    elif trace == "link":
        assert {int.from_bytes(link.span_id, "big") for span in spans for link in span.links} == sampled
        assert {link.trace_id.hex() for span in spans for link in span.links} == {TRACE}
        assert all(not span.parent_span_id for span in spans)
    else:
        assert sorted(int.from_bytes(span.parent_span_id, "big") for span in spans) == sorted(sampled)
        assert {span.trace_id.hex() for span in spans} == {TRACE}
        assert {attributes(span.attributes)["messaging.nats.stream.sequence"] for span in spans} == sampled


@pytest.mark.parametrize("trace", ["link", "continue"])
async def test_every_kind_of_rule_makes_spans(
    trace: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, receiver: OtlpReceiver
) -> None:
    url = await servers.url("2.15.3")
    here = await EveryKind.make(await raw_peer(url), unique_name("spans"))
    block = traced(77)
    async with running(settings_for(url, *here.rules, telemetry={"trace": trace})) as bridge:
        await here.traffic(MESSAGES, block)
        await here.done(bridge.supervisors, MESSAGES)
        operations = {supervisor.rule.name: kind_of(supervisor.rule).operation for supervisor in bridge.supervisors}
    spans: dict[str, list[dict[str, Any]]] = {}
    for span in receiver.spans:
        found = attributes(span.attributes)
        assert found["messaging.operation.name"] == operations[found["messaging.nats.bridge.rule"]]
        spans.setdefault(found["messaging.nats.bridge.rule"], []).append(found)
    assert set(spans) == set(operations) - {"watch"}  # which takes no messages
    if trace == "continue":
        counts = {rule: len(found) for rule, found in spans.items()}
        most = dict.fromkeys(spans, MESSAGES + 1) | {"kv_sources": MESSAGES, "subject_transform": MESSAGES}
        assert counts == most | {"advisories": 1}
    # What is stored keeps the producer's lines as they were.
    for stream in (f"T{here.name}", f"K{here.name}", f"KV_C{here.name}"):
        for message in await stored_messages(here.peer, stream, MESSAGES):
            assert message.header_block.startswith(block[:-2])


async def test_traces_without_a_receiver_are_reported(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("unread"))
    with capture_logs() as log:
        async with running(settings_for(url, here.rule(), telemetry={"trace": "link"})) as bridge:
            assert bridge.telemetry.tracing_of(bridge.supervisors[0].rule) is None
    assert [line["log_level"] for line in log if line["event"] == "telemetry.no_traces"] == ["warning"]


async def test_a_receiver_that_never_answers_does_not_hold_up_the_end(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("silent"))
    ended = asyncio.Event()

    async def say_nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ended.wait()
        writer.close()

    silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    with capture_logs() as log:
        async with running(settings_for(url, here.rule())) as bridge:
            await here.load.burst(10)
            await here.bridged.count(10)
    assert any(line["event"] == "telemetry.last_export_failed" for line in log)
    ended.set()
    assert bridge.telemetry.last_export is not None
    await asyncio.to_thread(bridge.telemetry.last_export.join)
    silent.close()
    await silent.wait_closed()
