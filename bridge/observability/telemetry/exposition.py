"""Metrics as text for Prometheus: what `/metrics` answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import accumulate
from math import inf, isinf

from prometheus_client import PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector, CollectorRegistry

from nats_bridge.bridge.observability.latency import BOUNDS, Latencies
from nats_bridge.bridge.observability.telemetry.names import Metric
from nats_bridge.bridge.observability.telemetry.readings import Reading

__all__ = ["Exposition"]


class Exposition:
    """Renders a sidecar's metrics, and those of its process.

    Args:
        readings: asks the sidecar for every value.
    """

    def __init__(self, readings: Callable[[], Iterable[Reading]]) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Sidecar(readings))
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def __call__(self, accept: str = "") -> tuple[bytes, str]:
        """Text and content type: OpenMetrics for those whose `Accept` header asks for it, else Prometheus' own."""
        encode, content_type = choose_encoder(accept)
        text: bytes = encode(self._registry)
        return text, content_type


class _Sidecar(Collector):
    def __init__(self, readings: Callable[[], Iterable[Reading]]) -> None:
        self._readings = readings

    def collect(self) -> Iterable[Family]:
        families: dict[str, Family] = {}
        for metric, labels, value in self._readings():
            family = families.get(metric.prometheus)
            if family is None:
                family = families[metric.prometheus] = _family(metric)
            if isinstance(family, HistogramMetricFamily):
                assert isinstance(value, Latencies)
                # The sum is read after the counts: a value added in between is missing in both.
                buckets = [
                    ("+Inf" if isinf(bound) else str(bound), count)
                    for bound, count in zip((*BOUNDS, inf), accumulate(value.counts), strict=True)
                ]
                family.add_metric(labels, buckets, value.total)
            elif isinstance(family, CounterMetricFamily | GaugeMetricFamily):
                assert not isinstance(value, Latencies)
                family.add_metric(labels, value)
        return families.values()


def _family(metric: Metric) -> Family:
    match metric.kind:
        case "counter":
            return CounterMetricFamily(metric.prometheus, metric.help, labels=metric.labels)
        case "gauge":
            return GaugeMetricFamily(metric.prometheus, metric.help, labels=metric.labels)
        case "histogram":
            return HistogramMetricFamily(metric.prometheus, metric.help, labels=metric.labels)
