"""A receiver of OTLP over HTTP, which keeps everything."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class OtlpReceiver:
    """What was exported to an endpoint.

    Attributes:
        url: the endpoint.
        metrics: the newest export of metrics, by name; empty before the first one.
        spans: all spans.
        resource: who exported last.
        instances: everybody who has exported metrics.
        answer: the status that is given from now on.
    """

    def __init__(self) -> None:
        self.url = ""
        self.metrics: dict[str, Metric] = {}
        self.spans: list[Span] = []
        self.resource: dict[str, Any] = {}
        self.instances: set[str] = set()
        self.answer = 200

    async def take_metrics(self, request: web.Request) -> web.Response:
        """An export of metrics."""
        found = ExportMetricsServiceRequest.FromString(await _body(request))
        (resource,) = found.resource_metrics
        self.resource = attributes(resource.resource.attributes)
        self.instances.add(self.resource["service.instance.id"])
        self.metrics = {metric.name: metric for scope in resource.scope_metrics for metric in scope.metrics}
        return web.Response(status=self.answer)

    async def take_traces(self, request: web.Request) -> web.Response:
        """An export of spans."""
        found = ExportTraceServiceRequest.FromString(await _body(request))
        for resource in found.resource_spans:
            self.resource = attributes(resource.resource.attributes)
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]
        return web.Response(status=self.answer)

    def number(self, name: str, **wanted: str) -> float | None:
        """The value of the one data point with these attributes (the last parts of their names); None if none has."""
        metric = self.metrics.get(name)
        if metric is None:
            return None
        points = metric.sum.data_points or metric.gauge.data_points
        found = [
            point.as_double if point.HasField("as_double") else point.as_int
            for point in points
            if wanted.items() <= _by_last_part(attributes(point.attributes)).items()
        ]
        assert len(found) <= 1
        return found[0] if found else None


def attributes(pairs: Any) -> dict[str, Any]:
    """Attributes by name."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "string_value") for pair in pairs}


def _by_last_part(found: dict[str, Any]) -> dict[str, Any]:
    return {name.rpartition(".")[2]: value for name, value in found.items()}


async def _body(request: web.Request) -> bytes:
    body = await request.read()
    return gzip.decompress(body) if body.startswith(b"\x1f\x8b") else body


@asynccontextmanager
async def otlp_receiver() -> AsyncIterator[OtlpReceiver]:
    """Listen on loopback."""
    receiver = OtlpReceiver()
    app = web.Application(client_max_size=1 << 26)
    app.add_routes([web.post("/v1/metrics", receiver.take_metrics), web.post("/v1/traces", receiver.take_traces)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    receiver.url = f"http://{host}:{port}"
    try:
        yield receiver
    finally:
        await runner.cleanup()
