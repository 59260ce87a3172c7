"""docs/telemetry.md has every reason and event, as they are; the metrics are in docs/reference."""

from __future__ import annotations

import re
from pathlib import Path

from nats_bridge.bridge.kinds.registry import KINDS, kind_named
from nats_bridge.bridge.observability.telemetry.names import ATTRIBUTES, METRICS

MEANINGS = [kind_named(name).meanings for name in KINDS]
PAGE = (Path(__file__).parents[2] / "docs" / "telemetry.md").read_text("utf-8")


def test_the_tables_of_reasons_and_events() -> None:
    _, reasons, events = PAGE.split("| reason |")[0], *PAGE.split("| reason |")[1].split("| event |")
    named = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)
    assert set(named.findall(reasons)) == {reason for meanings in MEANINGS for reason in meanings.dropped.values()}
    assert set(named.findall(events)) == {event for meanings in MEANINGS for event in meanings.events}


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
