"""The newest problems of a rule are kept as they are logged."""

import pytest

from docs.reference.log_events import EVENTS
from nats_bridge.observability.recent_errors import REMARKS, last_errors, remember


def test_warnings_and_errors_that_name_a_rule_are_kept() -> None:
    event = {"event": "rule.failed", "rule": "kept", "reason": "because", "meaning": "more"}
    assert remember(None, "error", dict(event)) == event
    remember(None, "info", {"event": "rule.ready", "rule": "kept"})
    remember(None, "warning", {"event": "connection.lost"})
    remember(None, "warning", {"event": "rule.slow", "rule": "kept", "meaning": "it will pass"})
    lines = last_errors("kept")
    assert [(line["event"], line["reason"]) for line in lines] == [
        ("rule.failed", "because"),
        ("rule.slow", "it will pass"),
    ]
    assert lines[0]["at"].endswith("Z")
    assert last_errors("another") == []


def test_only_the_newest_twenty() -> None:
    for number in range(50):
        remember(None, "warning", {"event": f"e{number}", "rule": "many"})
    assert [line["event"] for line in last_errors("many")] == [f"e{number}" for number in range(30, 50)]


@pytest.mark.parametrize("event", sorted(REMARKS))
def test_a_remark_is_a_warning_that_is_not_a_problem(event: str) -> None:
    assert EVENTS[event].level == "warning"
    remember(None, "warning", {"event": event, "rule": "healthy"})
    assert last_errors("healthy") == []
