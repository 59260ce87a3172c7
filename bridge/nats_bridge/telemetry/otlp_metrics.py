"""Metrics by OTLP: OpenTelemetry's instruments, which read the sidecar whenever they are collected.

Rules count latencies in buckets themselves, which costs less than calling an instrument's `record` for each batch. The
exporter adds them to the instruments' values. Imported only if OTLP is configured.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

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

from nats_bridge.observability.latency import BOUNDS, Latencies
from nats_bridge.telemetry.names import (
    ATTRIBUTES,
    METRICS,
    OPERATION,
    OPERATION_TYPE,
    START_TIME,
    SYSTEM,
    SYSTEM_NATS,
    Metric,
)
from nats_bridge.telemetry.otlp import FailedExports, collector_session
from nats_bridge.telemetry.readings import Reading

_SCOPE = "nats-bridge"


def export_metrics(readings: Callable[[], list[Reading]], resource: Resource) -> MeterProvider:
    """Start exporting, every OTEL_METRIC_EXPORT_INTERVAL. The provider's `shutdown` ends it.

    Args:
        readings: reads the sidecar's metrics; called in the exporter's thread.
        resource: the exporting process.
    """
    reader = PeriodicExportingMetricReader(_Exporter(readings))
    provider = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
    meter = provider.get_meter(_SCOPE)
    for metric in METRICS:
        if metric.kind != "histogram":
            _observe(meter, metric, readings)
    return provider


def _observe(meter: Meter, metric: Metric, readings: Callable[[], list[Reading]]) -> None:
    create = meter.create_observable_counter if metric.kind == "counter" else meter.create_observable_gauge
    create(metric.otel, [partial(_observations, metric, readings)], unit=metric.unit, description=metric.help)


def _observations(metric: Metric, readings: Callable[[], list[Reading]], _: CallbackOptions) -> Iterable[Observation]:
    for found, labels, value in readings():
        if found is metric and not isinstance(value, Latencies):
            yield Observation(value, _attributes(metric, labels))


def _attributes(metric: Metric, labels: tuple[str, ...]) -> dict[str, str]:
    found = {SYSTEM: SYSTEM_NATS}
    if metric.operation is not None:
        found[OPERATION], found[OPERATION_TYPE] = metric.operation
    return found | {ATTRIBUTES[name]: value for name, value in zip(metric.labels, labels, strict=True)}


class _Exporter(OTLPMetricExporter):
    """Adds the latencies, and logs failed exports."""

    def __init__(self, readings: Callable[[], list[Reading]]) -> None:
        super().__init__(session=collector_session())
        self._readings = readings
        self._failed = FailedExports("metrics", "tried again with the next export")

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **options: Any
    ) -> MetricExportResult:
        result = super().export(_with_latencies(metrics_data, self._readings()), timeout_millis, **options)
        if result is not MetricExportResult.SUCCESS:
            self._failed.one_more()
        return result


def _with_latencies(data: MetricsData, found: Sequence[Reading]) -> MetricsData:
    """Return the data with the latencies in it, in the scope of the other metrics."""
    points: dict[Metric, list[HistogramDataPoint]] = {}
    now_ns = time.time_ns()
    started_at = next(value for metric, _, value in found if metric is START_TIME)
    assert isinstance(started_at, float)
    for metric, labels, value in found:
        if isinstance(value, Latencies):
            counts = tuple(value.counts)
            points.setdefault(metric, []).append(
                HistogramDataPoint(
                    attributes=_attributes(metric, labels),
                    start_time_unix_nano=int(started_at * 1e9),
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
        ExportedMetric(metric.otel, metric.help, metric.unit, Histogram(each, AggregationTemporality.CUMULATIVE))
        for metric, each in points.items()
    ]
    first, *others = data.resource_metrics
    scope, *scopes = first.scope_metrics
    scope = replace(scope, metrics=[*scope.metrics, *added])
    return replace(data, resource_metrics=[replace(first, scope_metrics=[scope, *scopes]), *others])
