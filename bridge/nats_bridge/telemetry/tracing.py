"""Traces: spans of a rule's work, in the publishers' traces.

The publisher's `traceparent` stays in the message unchanged; tracing never changes a message.

* `link`: a span per batch that holds messages of sampled traces, with links to them, as many as a span may have.
* `continue`: a span per message of a sampled trace, in that trace, below the producer's span.

A span lasts from receiving a batch until it is written (and no longer waits in a full socket). With `passthrough`, this
module is not imported.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import islice
from typing import Literal, TypeAlias

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Tracer,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from nats_bridge.client.wire import Delivered
from nats_bridge.telemetry import names
from nats_bridge.telemetry.otlp import FailedExports, collector_session

TraceMode: TypeAlias = Literal["link", "continue"]

_MOST_LINKS = 128  # the default number of links in a span (OTEL_SPAN_LINK_COUNT_LIMIT)
_PARENT = re.compile(
    rb"\n(?i:traceparent):[ \t]*([0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-([0-9a-f]{2})(?:-[^\r\n]*)?)[ \t]*\r"
)
_STATE = re.compile(rb"\n(?i:tracestate):[ \t]*([^\r\n]*)\r")
_SAMPLED = 1
_W3C = TraceContextTextMapPropagator()


def start_tracing(resource: Resource) -> TracerProvider:
    """Begin to export spans as the standard variables specify (including the sampler), until `shutdown`."""
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_Exporter()))
    return provider


class _Exporter(OTLPSpanExporter):
    """Logs failed exports."""

    def __init__(self) -> None:
        super().__init__(session=collector_session())
        self._failed = FailedExports("traces", "these spans are lost")

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = super().export(spans)
        if result is not SpanExportResult.SUCCESS:
            self._failed.one_more()
        return result


class RuleTracing:
    """Makes one rule's spans.

    Args:
        tracer: makes spans.
        mode: which ones.
        operation: the name of the operation, such as `republish`.
        destination: the stream or pattern that it acts on, never a message's subject.
    """

    def __init__(self, tracer: Tracer, mode: TraceMode, rule: str, operation: str, destination: str) -> None:
        self._tracer = tracer
        self._mode = mode
        self._name = f"{operation} {destination}"
        self._attributes = {
            names.SYSTEM: names.SYSTEM_NATS,
            names.OPERATION: operation,
            names.OPERATION_TYPE: "process",
            names.DESTINATION: destination,
            names.RULE: rule,
        }

    def around(
        self, batch: Sequence[Delivered], handle: Callable[[], Awaitable[None] | None]
    ) -> Awaitable[None] | None:
        """Handle a batch within its spans. Return the result of `handle`."""
        spans = self.begin(batch)
        if not spans:
            return handle()
        waiting = handle()
        if waiting is not None:
            return _finish(waiting, spans)
        end(spans)
        return None

    def begin(self, batch: Sequence[Delivered]) -> list[Span]:
        """Begin the spans of a batch, and return them for `end`."""
        return self._linked(batch) if self._mode == "link" else self._continued(batch)

    def _linked(self, batch: Sequence[Delivered]) -> list[Span]:
        links = [Link(context) for context, _ in islice(_sampled(batch), _MOST_LINKS)]
        if not links:
            return []
        attributes = self._attributes | {names.BATCH_COUNT: len(batch)}
        return [
            self._tracer.start_span(
                self._name, context=Context(), kind=SpanKind.CONSUMER, attributes=attributes, links=links
            )
        ]

    def _continued(self, batch: Sequence[Delivered]) -> list[Span]:
        spans = []
        for context, (subject, reply, _, payload) in _sampled(batch):
            attributes: dict[str, str | int] = {
                **self._attributes,
                names.BODY_SIZE: len(payload),
                names.SUBJECT: subject.decode("utf-8", "replace"),
            }
            if reply.startswith(b"$JS.ACK."):
                tokens = reply.split(b".")
                attributes[names.SEQUENCE] = int(tokens[5 if len(tokens) == 9 else 7])
            parent = set_span_in_context(NonRecordingSpan(context), Context())
            spans.append(
                self._tracer.start_span(self._name, context=parent, kind=SpanKind.CONSUMER, attributes=attributes)
            )
        return spans


def end(spans: Sequence[Span]) -> None:
    """End the spans."""
    for span in spans:
        span.end()


async def _finish(waiting: Awaitable[None], spans: Sequence[Span]) -> None:
    try:
        await waiting
    finally:
        end(spans)


def _context_of(found: re.Match[bytes], block: bytes) -> SpanContext | None:
    """Return the producer's context in a raw header block, by W3C's rules; None if it is invalid."""
    carrier = {"traceparent": found[1].decode("ascii", "replace")}
    if (state := _STATE.search(block)) is not None:
        carrier["tracestate"] = state[1].decode("ascii", "replace")
    context = get_current_span(_W3C.extract(carrier, Context())).get_span_context()
    return context if context.is_valid else None


def _sampled(batch: Sequence[Delivered]) -> Iterator[tuple[SpanContext, Delivered]]:
    search = _PARENT.search
    for message in batch:
        block = message[2]
        # Most messages belong to no sampled trace, and need no further work.
        if not block or (found := search(block)) is None or not int(found[2], 16) & _SAMPLED:
            continue
        context = _context_of(found, block)
        if context is not None:
            yield context, message
