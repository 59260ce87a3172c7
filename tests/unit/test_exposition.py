"""The metrics of many rules as one text, though they are rendered some at a time, outside the event loop."""

import asyncio
import threading
from typing import cast

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families

from nats_bridge.app.sidecar import Sidecar
from nats_bridge.http.own_state import OwnState
from nats_bridge.observability.latency import Latencies
from nats_bridge.telemetry import names
from nats_bridge.telemetry.exposition import Exposition
from nats_bridge.telemetry.readings import Reading

RULES = 1201  # several pieces of each metric, and a rest


def readings() -> list[Reading]:
    latencies = Latencies()
    latencies.record(0.01)
    return [
        reading
        for number in range(RULES)
        for reading in (
            (names.RECEIVED_MESSAGES, (f"r{number}", "republish"), number),
            (names.LAG_MESSAGES, (f"r{number}", "republish"), 2 * number),
            (names.PUBLISH, (f"r{number}", "republish"), latencies),
        )
    ]


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text; version=1.0.0"])
def test_all_pieces_make_one_text(accept: str) -> None:
    text, content_type = Exposition(readings)(accept)
    assert ("openmetrics" in content_type) == bool(accept)
    parse = open_metrics if accept else text_string_to_metric_families
    families = {family.name: family for family in parse(text.decode())}
    assert text.count(b"# TYPE nats_bridge_lag_messages") == 1
    assert text.count(b"# EOF") == bool(accept)
    received = [sample for sample in families["nats_bridge_received_messages"].samples if "total" in sample.name]
    assert [sample.value for sample in received] == list(range(RULES))
    assert [sample.value for sample in families["nats_bridge_lag_messages"].samples] == list(range(0, 2 * RULES, 2))
    counts = [s for s in families["nats_bridge_publish_duration_seconds"].samples if s.name.endswith("_count")]
    assert [sample.value for sample in counts] == [1] * RULES
    assert "process_cpu_seconds" in families or "process_cpu_seconds_total" in families


async def test_the_event_loop_runs_while_metrics_are_rendered() -> None:
    state, release, began = OwnState(cast(Sidecar, None), 60), threading.Event(), threading.Event()

    def rendered(accept: str) -> tuple[bytes, str]:
        began.set()
        assert release.wait(60), "the event loop does not run"
        return b"text", accept

    state.exposition = rendered
    asking = asyncio.create_task(state.metrics("plain"))
    assert await asyncio.to_thread(began.wait, 60)
    release.set()
    assert await asking == (b"text", "plain")
