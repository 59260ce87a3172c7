"""The reference has every reason and event; names of metrics keep the conventions."""

import re
from pathlib import Path

from nats_bridge.rule_kinds import KINDS, kind_named
from nats_bridge.telemetry.names import ATTRIBUTES, METRICS

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text("utf-8")


def test_every_reason_and_event_is_in_the_reference() -> None:
    for kind in map(kind_named, KINDS):
        assert {reason for reason in kind.meanings.dropped.values() if f"- `{reason}`" not in PAGE} == set()
        assert {event for event in kind.events if f"- `{event}`" not in PAGE} == set()


def test_names_keep_the_customs() -> None:
    assert len({metric.prometheus for metric in METRICS}) == len({metric.otel for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch(r"nats_bridge_[a-z_]+", metric.prometheus)
        assert re.fullmatch(r"messaging(\.[a-z_]+)+", metric.otel)
        assert set(metric.labels) <= ATTRIBUTES.keys()
        assert "subject" not in metric.labels
        if metric.unit == "s":
            assert metric.prometheus.endswith("_seconds")
        if metric.kind == "gauge":
            assert not metric.prometheus.endswith("_total")
