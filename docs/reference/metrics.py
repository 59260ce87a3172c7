"""The page on metrics: their names for Prometheus and for OpenTelemetry, from the one module that has them."""

from __future__ import annotations

from typing import Final

from docs.reference.markdown import code, table
from nats_bridge.telemetry.names import ATTRIBUTES, METRICS, Metric

_HEAD: Final = """\
# Metrics

Every metric that a sidecar exports. This page is generated: `python -m docs.reference --write`. [Metrics and
traces](../telemetry.md) explains how to read them, and [counters](counters.md) which counter of a rule is in which
metric.

The second name is the one by OTLP. It follows the semantic conventions for messaging if they have one. At `/metrics`, a
histogram has `_bucket`, `_sum` and `_count` behind its name. Metrics of rules have the labels `rule` and `kind`.
"""
_OF_RULES: Final = ("rule", "kind")


def page() -> str:
    """The page's text."""
    metrics = table(
        ("at `/metrics`, by OTLP (unit)", "meaning"),
        (
            (f"{code(metric.sample_name)}<br>{code(metric.otel)} ({metric.unit})", _meaning(metric))
            for metric in METRICS
        ),
    )
    attributes = table(("label", "attribute"), ((code(label), code(name)) for label, name in ATTRIBUTES.items()))
    return "\n".join((_HEAD, metrics, attributes))


def _meaning(metric: Metric) -> str:
    more = [code(label) for label in metric.labels if label not in _OF_RULES]
    kind = " A histogram." if metric.kind == "histogram" else ""
    return metric.help + kind + (f" By {', '.join(more)}." if more else "")
