"""The page on metrics: their names for Prometheus and for OpenTelemetry, from the one module that has them."""

from __future__ import annotations

from typing import Final

from docs.reference.markdown import code, table
from nats_bridge.telemetry.names import ATTRIBUTES, METRICS

_HEAD: Final = """\
# Metrics

Every metric that a sidecar exports. This page is generated: `python -m docs.reference --write`. How to read them,
dashboards and OTLP are in [metrics and traces](../telemetry.md); which counter of a rule is in which metric, in
[counters](counters.md).

## At /metrics, for Prometheus

A histogram has `_bucket`, `_sum` and `_count` behind its name.
"""
_OTEL: Final = """\
## By OTLP, in OpenTelemetry's words

The semantic conventions for messaging give the names where they have one.
"""


def page() -> str:
    """The page's text."""
    metrics = table(
        ("metric", "what it measures", "type", "labels"),
        (
            (code(metric.sample_name), metric.help, metric.kind, ", ".join(map(code, metric.labels)) or "-")
            for metric in METRICS
        ),
    )
    names = table(
        ("metric", "in OpenTelemetry", "unit"),
        ((code(metric.sample_name), code(metric.otel), code(metric.unit)) for metric in METRICS),
    )
    attributes = table(("label", "attribute"), ((code(label), code(name)) for label, name in ATTRIBUTES.items()))
    return "\n".join((_HEAD, metrics, _OTEL, names, attributes))
