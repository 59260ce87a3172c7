"""The producer's trace context in raw header blocks, and the spans that are made of it."""

import asyncio

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, SpanKind

from nats_bridge.client.wire import Delivered
from nats_bridge.telemetry.tracing import RuleTracing, TraceMode

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def block(*lines: str) -> bytes:
    return ("NATS/1.0\r\n" + "".join(f"{line}\r\n" for line in lines) + "\r\n").encode()


@pytest.mark.parametrize("name", ["traceparent", "Traceparent", "TraceParent", "TRACEPARENT"])
@pytest.mark.parametrize("before", [(), ("A: 1",)])
@pytest.mark.parametrize("spaces", ["", " ", "\t"])
def test_it_is_found(name: str, before: tuple[str, ...], spaces: str) -> None:
    context = context_in(block(*before, f"{name}:{spaces}00-{TRACE}-{SPAN}-01", "tracestate: a=1,b=2", "Z: 1"))
    assert context is not None
    assert (f"{context.trace_id:032x}", f"{context.span_id:016x}", context.is_remote) == (TRACE, SPAN, True)
    assert context.trace_flags.sampled
    assert context.trace_state.to_header() == "a=1,b=2"


@pytest.mark.parametrize(
    "value",
    [
        "",
        f"00-{TRACE}-{SPAN}",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01x",
    ],
)
def test_what_is_not_valid_is_none(value: str) -> None:
    assert context_in(block(f"traceparent: {value}")) is None


def test_a_later_version_may_say_more() -> None:
    assert context_in(block(f"traceparent: 01-{TRACE}-{SPAN}-01-more")) is not None
    assert context_in(b"") is None
    assert context_in(block("x-traceparent: 00-" + TRACE)) is None


def made(mode: TraceMode, batch: list[Delivered]) -> list[ReadableSpan]:
    spans = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    tracing = RuleTracing(provider.get_tracer("test"), mode, "orders", "republish", "ORDERS")
    handled = []
    assert tracing.around(batch, lambda: handled.append(1)) is None
    assert handled == [1]
    return list(spans.get_finished_spans())


def context_in(header_block: bytes) -> SpanContext | None:
    """What the span of one message with these headers is linked to."""
    spans = made("link", [(b"orders.a", b"", header_block, b"")])
    return spans[0].links[0].context if spans else None


def message(number: int, flags: str = "01") -> Delivered:
    context = block(f"traceparent: 00-{TRACE}-{number:016x}-{flags}") if flags else b""
    return b"orders.a", b"$JS.ACK.ORDERS.c.1.%d.%d.1700000000000000000.0" % (number, number), context, b"12345"


def test_a_batch_is_linked_to_the_sampled_traces_of_its_messages() -> None:
    (span,) = made("link", [message(1), message(2, "00"), message(3, ""), message(4)])
    assert span.name == "republish ORDERS"
    assert (span.kind, span.parent) == (SpanKind.CONSUMER, None)
    assert [link.context.span_id for link in span.links] == [1, 4]
    assert span.attributes == {
        "messaging.system": "nats",
        "messaging.operation.name": "republish",
        "messaging.operation.type": "process",
        "messaging.destination.name": "ORDERS",
        "messaging.nats.bridge.rule": "orders",
        "messaging.batch.message_count": 4,
    }
    (span,) = made("link", [message(number) for number in range(1, 1000)])
    assert len(span.links) == 128


def test_a_message_of_a_sampled_trace_gets_a_span_in_it() -> None:
    first, second = made("continue", [message(1), message(2, "00"), message(3, ""), message(4)])
    assert first.parent is not None
    assert (first.parent.span_id, f"{first.context.trace_id:032x}") == (1, TRACE)
    assert second.attributes is not None
    assert second.attributes["messaging.nats.stream.sequence"] == 4
    assert second.attributes["messaging.nats.subject"] == "orders.a"
    assert second.attributes["messaging.message.body.size"] == 5


def test_a_name_in_any_case_is_seen_in_batches() -> None:
    subject, reply, found, payload = message(1)
    (span,) = made("link", [(subject, reply, found.replace(b"traceparent", b"TraceParent"), payload)])
    assert len(span.links) == 1


@pytest.mark.parametrize("mode", ["link", "continue"])
def test_without_a_sampled_trace_there_are_no_spans(mode: TraceMode) -> None:
    assert made(mode, [message(1, "00"), message(2, "")]) == []


async def test_spans_end_when_the_batch_is_written() -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    tracing = RuleTracing(provider.get_tracer("test"), "link", "orders", "copy", "ORDERS")
    written = asyncio.Event()

    async def write() -> None:
        await written.wait()

    waiting = tracing.around([message(1)], write)
    assert waiting is not None
    assert not spans.get_finished_spans()
    written.set()
    await waiting
    assert len(spans.get_finished_spans()) == 1
