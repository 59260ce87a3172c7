"""Renders metrics as text for Prometheus, the answer of `/metrics`."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from math import inf, isinf
from types import MappingProxyType

from prometheus_client import PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector, CollectorRegistry

from nats_bridge.observability.latency import BOUNDS, Latencies
from nats_bridge.telemetry.names import Metric
from nats_bridge.telemetry.readings import Reading

_FAMILIES: Mapping[str, Callable[..., Family]] = MappingProxyType(
    {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
)
_END = b"# EOF\n"  # of OpenMetrics, once
_PAUSE = 0.0002  # seconds
_READ_AT_ONCE, _VALUES_AT_ONCE, _HISTOGRAMS_AT_ONCE = 500, 500, 25


class Exposition:
    """Renders the metrics of a sidecar and its process. Called in a separate thread.

    A few hundred rules have tens of thousands of samples. They are rendered in portions, with pauses in which the event
    loop runs, and without keeping their objects, because the garbage collector would scan all of them at once.

    Args:
        readings: asks the sidecar for every value.
    """

    def __init__(self, readings: Callable[[], Iterable[Reading]]) -> None:
        self._readings = readings
        self._process = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)

    def __call__(self, accept: str = "") -> tuple[bytes, str]:
        """Text and content type: OpenMetrics for those whose `Accept` header asks for it, else Prometheus' own."""
        encode, content_type = choose_encoder(accept)
        by_metric: dict[Metric, list[tuple[tuple[str, ...], float | Latencies]]] = {}
        for number, (metric, labels, value) in enumerate(self._readings()):
            by_metric.setdefault(metric, []).append((labels, value))
            if number % _READ_AT_ONCE == 0:
                time.sleep(_PAUSE)
        text: list[bytes] = []
        for metric, values in by_metric.items():
            at_once = _HISTOGRAMS_AT_ONCE if metric.kind == "histogram" else _VALUES_AT_ONCE
            for start in range(0, len(values), at_once):
                piece: bytes = encode(_Piece(metric, values[start : start + at_once]))
                piece = piece.removesuffix(_END)
                text.append(piece[_samples_at(piece) :] if start else piece)
                time.sleep(_PAUSE)
        text.append(encode(self._process))
        return b"".join(text), content_type


class _Piece(Collector):
    """Some of a metric's samples."""

    def __init__(self, metric: Metric, values: Sequence[tuple[tuple[str, ...], float | Latencies]]) -> None:
        self._metric = metric
        self._values = values

    def collect(self) -> Iterable[Family]:
        family = _FAMILIES[self._metric.kind](self._metric.prometheus, self._metric.help, labels=self._metric.labels)
        for labels, value in self._values:
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
        return [family]


def _samples_at(piece: bytes) -> int:
    """Return the position of the first sample, after the lines about the metric."""
    start = 0
    while piece.startswith(b"#", start):
        start = piece.index(b"\n", start) + 1
    return start
