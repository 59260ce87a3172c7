"""The log: every event is in one table, rules and connections are named, storms are kept out, two formats."""

import ast
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog

from docs.reference.log_events import BOUND_FIELDS, EVENTS
from nats_bridge.observability.log_rate_limit import ALWAYS, StormLimit
from nats_bridge.observability.logs import configure_logs
from nats_bridge.settings import Log

ROOT = Path(__file__).parents[2]
_NAMED_BY = {"rule": "rule", "reader": "rule", "consumer": "rule", "copying": "rule", "connection": "connection"}
_METHODS = {"debug", "info", "warning", "error", "critical", "exception"}


@dataclass(frozen=True, slots=True)
class Call:
    """A call that logs: where, what, and whether its logger is bound to a rule already."""

    place: str
    event: str
    level: str
    fields: frozenset[str]
    bound: bool


def _calls() -> Iterator[Call]:
    for path in sorted((ROOT / "bridge").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            owner, method = node.func.value, node.func.attr
            named = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
            if method != "_warn" and not (method in _METHODS and named.lstrip("_") == "log"):
                continue
            event = node.args[0]
            if not isinstance(event, ast.Constant):
                assert isinstance(event, ast.Name), f"{path}:{node.lineno}: the event is not a text"
                assert event.id == "event", f"{path}:{node.lineno}: only _warn passes an event on"
                continue
            fields = frozenset(keyword.arg for keyword in node.keywords if keyword.arg)
            level = "warning" if method == "_warn" else method
            bound = method == "_warn" or not isinstance(owner, ast.Name)
            yield Call(f"{path.relative_to(ROOT)}:{node.lineno}", str(event.value), level, fields, bound)


@pytest.fixture(scope="module")
def calls() -> list[Call]:
    found = list(_calls())
    assert len(found) > 90
    return found


def test_every_logged_event_is_in_the_table(calls: list[Call]) -> None:
    wrong = []
    for call in calls:
        known = EVENTS.get(call.event)
        if known is None:
            wrong.append(f"{call.place}: add '{call.event}' to log_events.py of its kind, or of docs/reference")
            continue
        if call.level != known.level:
            wrong.append(f"{call.place}: '{call.event}' is logged as {call.level}, the table says {known.level}")
        if unknown := call.fields - {*known.fields, *BOUND_FIELDS}:
            wrong.append(f"{call.place}: the table has no {sorted(unknown)} of '{call.event}'")
    assert not wrong, "\n".join(wrong)


def test_the_lines_of_rules_and_connections_name_them(calls: list[Call]) -> None:
    wrong = []
    for call in calls:
        needed = _NAMED_BY.get(call.event.partition(".")[0])
        if needed and not call.bound and needed not in call.fields:
            wrong.append(f"{call.place}: '{call.event}' needs {needed}=")
    assert not wrong, "\n".join(wrong)


def test_the_table_has_nothing_that_is_never_logged(calls: list[Call]) -> None:
    assert set(EVENTS) - {call.event for call in calls} == set()


# -- storms


class _Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def _pass(limit: StormLimit, **line: Any) -> dict[str, Any] | None:
    try:
        return dict(limit(None, "warning", line))
    except structlog.DropEvent:
        return None


def test_a_storm_is_cut_and_counted() -> None:
    clock = _Clock()
    limit = StormLimit(burst=3, pause=10, clock=clock)
    line = {"event": "connection.refused", "connection": "a"}
    passed = [_pass(limit, **line) for _ in range(100)]
    assert passed == [line] * 3 + [None] * 97
    clock.now += 9.9
    assert _pass(limit, **line) is None
    clock.now += 0.2
    assert _pass(limit, **line) == {**line, "suppressed": 98}
    assert _pass(limit, **line) is None
    clock.now += 1000
    assert _pass(limit, **line) == {**line, "suppressed": 1}
    assert [_pass(limit, **line) for _ in range(3)] == [line, line, None], "the pause made room for a burst again"


def test_storms_of_different_rules_and_connections_are_different() -> None:
    limit = StormLimit(burst=1, pause=10, clock=_Clock())
    lines: list[dict[str, Any]] = [
        {"event": "rule.waiting", "rule": "a"},
        {"event": "rule.waiting", "rule": "b"},
        {"event": "reader.waiting", "rule": "a"},
        {"event": "reader.waiting", "rule": "a", "stream": "S"},
        {"event": "connection.lost", "connection": "a"},
    ]
    assert [_pass(limit, **line) for line in lines] == lines
    assert [_pass(limit, **line) for line in lines] == [None] * len(lines)


@pytest.mark.parametrize("event", sorted(ALWAYS))
def test_what_begins_or_ends_something_is_never_left_out(event: str) -> None:
    limit = StormLimit(burst=1, pause=10, clock=_Clock())
    assert all(_pass(limit, event=event, rule="a") for _ in range(50))


def test_what_ends_a_rule_or_the_sidecar_is_among_that() -> None:
    assert {"rule.failed", "sidecar.ended", "connection.closed"} <= ALWAYS


def test_all_of_that_is_in_the_table() -> None:
    assert ALWAYS - set(EVENTS) == set()


# -- formats


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def _fail(secret: str) -> None:
    raise ValueError(f"no {len(secret)}")


def _log_something() -> None:
    log = structlog.get_logger("bridge.test").bind(rule="a")
    try:
        _fail("hunter2")
    except ValueError:
        log.exception("rule.failed", reason="r")


def test_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(Log(format="json"))
    _log_something()
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["rule"], line["level"]) == ("rule.failed", "a", "error")
    assert line["timestamp"].endswith("Z")
    assert "ValueError: no 7" in line["exception"]


def test_console_lines_have_no_colours_and_no_variables_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(Log(format="console"))
    _log_something()
    text = capsys.readouterr().err
    assert "rule.failed" in text
    assert "rule=a" in text
    assert "ValueError: no 7" in text
    assert "\x1b" not in text
    assert "hunter2'" not in text.replace('_fail("hunter2")', ""), "the source line is fine, variables are not"
