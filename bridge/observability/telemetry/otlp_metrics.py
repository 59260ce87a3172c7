"""Metrics by OTLP: OpenTelemetry's instruments, which read the sidecar whenever they are collected.

Rules count latencies in buckets themselves, which costs less than an instrument's `record` per batch; the exporter
adds them to the instruments' values. Imported only where OTLP is configured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import structlog
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.metrics.export import Metric as ExportedMetric
from opentelemetry.sdk.resources import Resource

from nats_bridge.bridge.observability.latency import BOUNDS, Latencies
from nats_bridge.bridge.observability.telemetry.collector_session import collector_session
from nats_bridge.bridge.observability.telemetry.names import (
    ATTRIBUTES,
    METRICS,
    OPERATION,
    OPERATION_TYPE,
    SYSTEM,
    SYSTEM_NATS,
    Metric,
)
from nats_bridge.bridge.observability.telemetry.readings import Facts, readings

__all__ = ["export_metrics"]

_log = structlog.get_logger("bridge.telemetry")

_SCOPE = "nats-bridge"
_WARNING_PAUSE = 60.0  # seconds between two warnings of failed exports


def export_metrics(facts: Callable[[], Facts], resource: Resource) -> MeterProvider:
    """Start exporting, every OTEL_METRIC_EXPORT_INTERVAL; the provider's `shutdown` ends it.

    Args:
        facts: reads the sidecar; called in the exporter's thread.
        resource: the exporting process.
    """
    reader = PeriodicExportingMetricReader(_Exporter(facts))
    provider = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
    meter = provider.get_meter(_SCOPE)
    for metric in METRICS:
        if metric.kind != "histogram":
            _observe(meter, metric, facts)
    return provider


def _observe(meter: Meter, metric: Metric, facts: Callable[[], Facts]) -> None:
    create = meter.create_observable_counter if metric.kind == "counter" else meter.create_observable_gauge
    create(metric.otel, [partial(_observations, metric, facts)], unit=metric.unit, description=metric.help)


def _observations(metric: Metric, facts: Callable[[], Facts], _: CallbackOptions) -> Iterable[Observation]:
    for found, labels, value in readings(facts()):
        if found is metric and not isinstance(value, Latencies):
            yield Observation(value, _attributes(metric, labels))


def _attributes(metric: Metric, labels: tuple[str, ...]) -> dict[str, str]:
    found = {SYSTEM: SYSTEM_NATS}
    if metric.operation is not None:
        found[OPERATION], found[OPERATION_TYPE] = metric.operation
    return found | {ATTRIBUTES[name]: value for name, value in zip(metric.labels, labels, strict=True)}


class _Exporter(OTLPMetricExporter):
    """Adds the latencies; logs failed exports."""

    def __init__(self, facts: Callable[[], Facts]) -> None:
        super().__init__(session=collector_session())
        self._facts = facts
        self._next_warning = 0.0

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **options: Any
    ) -> MetricExportResult:
        result = super().export(_with_latencies(metrics_data, self._facts()), timeout_millis, **options)
        now = time.monotonic()
        if result is not MetricExportResult.SUCCESS and now >= self._next_warning:
            self._next_warning = now + _WARNING_PAUSE
            _log.warning("telemetry.export_failed", signal="metrics", meaning="tried again with the next export")
        return result


def _with_latencies(data: MetricsData, facts: Facts) -> MetricsData:
    """The data with the latencies in it, in the scope of the other metrics."""
    points: dict[Metric, list[HistogramDataPoint]] = {}
    now_ns = time.time_ns()
    for metric, labels, value in readings(facts):
        if isinstance(value, Latencies):
            counts = tuple(value.counts)
            points.setdefault(metric, []).append(
                HistogramDataPoint(
                    attributes=_attributes(metric, labels),
                    start_time_unix_nano=int(facts.started_at * 1e9),
                    time_unix_nano=now_ns,
                    count=sum(counts),
                    sum=value.total,
                    bucket_counts=counts,
                    explicit_bounds=BOUNDS,
                    min=None,  # type: ignore[arg-type]  # optional on the wire, and not known
                    max=None,  # type: ignore[arg-type]
                )
            )
    added = [
        ExportedMetric(metric.otel, metric.help, metric.unit, Histogram(found, AggregationTemporality.CUMULATIVE))
        for metric, found in points.items()
    ]
    first, *others = data.resource_metrics
    scope, *scopes = first.scope_metrics
    scope = replace(scope, metrics=[*scope.metrics, *added])
    return replace(data, resource_metrics=[replace(first, scope_metrics=[scope, *scopes]), *others])
