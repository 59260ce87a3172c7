"""The dashboard and the alert rules use names and labels that a real `/metrics` has, in PromQL that parses."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from nats_bridge.telemetry.names import METRICS
from tests.live.go_programs import go_program
from tests.live.observing.every_kind import EveryKind
from tests.live.observing.metrics_endpoint import scrape
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecars import running, settings_for
from tests.live.until import until

DASHBOARDS = Path(__file__).parents[3] / "k8s" / "monitoring"
OF_TARGETS = {"namespace", "job", "instance"}
"""What Prometheus adds to every sample."""

_LABELS_IN_TEXT = re.compile(r"\$labels\.(\w+)")


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((DASHBOARDS / "alerts.yaml").read_text("utf-8"))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((DASHBOARDS / "nats-bridge.json").read_text("utf-8"))["panels"]
    return [panel for panel in found if panel["type"] != "row"]


def queries() -> dict[str, str]:
    """All queries, by where they are; Grafana's own variables replaced."""
    found = {f"alert {alert['alert']}": alert["expr"] for alert in alerts()}
    for panel in panels():
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", "5m")
            found[f"panel {panel['title']} {target['refId']}"] = re.sub(
                r"\$(namespace|job|instance|rule)\b", ".*", expression
            )
    return found


def parts(expression: Any) -> Iterator[Any]:
    """An expression and all within it."""
    yield expression
    for name in ("expr", "lhs", "rhs", "param", "vector_selector"):
        if (part := getattr(expression, name, None)) is not None:
            yield from parts(part)
    for part in getattr(expression, "args", ()):
        yield from parts(part)


def result_labels(expression: Any, known: dict[str, set[str]]) -> set[str]:
    """The labels that the samples of an expression can have."""
    match expression:
        case promql_parser.AggregateExpr():
            return set(expression.modifier.labels) if expression.modifier else set()
        case promql_parser.VectorSelector():
            return known[expression.name]
        case promql_parser.MatrixSelector():
            return known[expression.vector_selector.name]
        case promql_parser.Call():
            labels = [result_labels(argument, known) for argument in expression.args]
            return set().union(*labels) - ({"le"} if expression.func.name == "histogram_quantile" else set())
        case promql_parser.BinaryExpr():
            grouped = (expression.modifier and expression.modifier.group_labels) or ()
            return (result_labels(expression.lhs, known) | result_labels_of_other(expression, known)) | set(grouped)
        case promql_parser.ParenExpr():
            return result_labels(expression.expr, known)
        case _:
            return set()


def result_labels_of_other(expression: Any, known: dict[str, set[str]]) -> set[str]:
    """What the right side adds where it is the one with labels."""
    number = isinstance(expression.lhs, promql_parser.NumberLiteral | promql_parser.Call)
    return result_labels(expression.rhs, known) if number else set()


def check(known: dict[str, set[str]]) -> None:
    """Hold every query to the labels of the metrics that there are."""
    for place, text in queries().items():
        for part in parts(promql_parser.parse(text)):
            if isinstance(part, promql_parser.VectorSelector):
                assert part.name in known, f"{place}: there is no {part.name}"
                used = {matcher.name for matcher in part.matchers.matchers}
                assert used <= known[part.name], f"{place}: {part.name} has no {used - known[part.name]}"
            if isinstance(part, promql_parser.AggregateExpr) and part.modifier:
                wanted, there = set(part.modifier.labels), result_labels(part.expr, known)
                assert wanted <= there, f"{place}: nothing has {wanted - there}"


def test_queries_parse_and_the_legend_s_labels_are_there() -> None:
    known = {"up": OF_TARGETS} | {
        name: set(metric.labels) | OF_TARGETS | ({"le"} if name.endswith("_bucket") else set())
        for metric in METRICS
        for name in (
            [f"{metric.prometheus}_{end}" for end in ("bucket", "sum", "count")]
            if metric.kind == "histogram"
            else [metric.sample_name]
        )
    }
    known |= {f"process_{name}": OF_TARGETS for name in ("resident_memory_bytes", "cpu_seconds_total")}
    check(known)
    for alert in alerts():
        labels = result_labels(promql_parser.parse(alert["expr"]), known)
        for text in alert["annotations"].values():
            assert set(_LABELS_IN_TEXT.findall(text)) <= labels, alert["alert"]
        assert alert["labels"]["severity"] in {"info", "warning", "critical"}
        assert alert["annotations"].keys() == {"summary", "description", "runbook_url"}
    for panel in panels():
        for target in panel["targets"]:
            text = queries()[f"panel {panel['title']} {target['refId']}"]
            wanted = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert wanted <= result_labels(promql_parser.parse(text), known), panel["title"]


def test_the_dashboard_shows_every_metric() -> None:
    used = {
        part.name
        for text in queries().values()
        for part in parts(promql_parser.parse(text))
        if isinstance(part, promql_parser.VectorSelector)
    }
    for metric in METRICS:
        names = {metric.sample_name, f"{metric.prometheus}_bucket"}
        assert names & used, f"no panel and no alert has {metric.prometheus}"


def test_each_choice_narrows_every_panel_and_the_choices_after_it() -> None:
    listed = json.loads((DASHBOARDS / "nats-bridge.json").read_text("utf-8"))["templating"]["list"]
    choices = {each["name"]: each["query"]["query"] for each in listed if each["type"] == "query"}
    assert list(choices) == ["namespace", "job", "instance", "rule"]
    for name, query in choices.items():
        assert query.endswith(f", {name})")
        before = list(choices)[: list(choices).index(name)]
        assert re.findall(r'(\w+)=~"\$(\w+)"', query) == [(each, each) for each in before]
    ours = {metric.sample_name: metric.labels for metric in METRICS}
    for panel in panels():
        for target in panel["targets"]:
            selectors = re.findall(r"(\w+)\{([^}]*)\}", target["expr"].replace("{{", "").replace("}}", ""))
            assert selectors
            for metric, matchers in selectors:
                chosen = ["namespace", "job", "instance", *(["rule"] if "rule" in ours.get(metric, ()) else [])]
                found = [name for name, value in re.findall(r'(\w+)=~"\$(\w+)"', matchers) if name == value]
                assert found[: len(chosen)] == chosen, panel["title"]


@pytest.mark.parametrize("broken", ["nats_bridge_nothing", 'nats_bridge_ready{rule="a"}', "sum by (subject) (up)"])
def test_the_check_sees_what_is_wrong(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "queries", lambda: {"here": broken})
    with pytest.raises(AssertionError, match="here: "):
        check({"up": OF_TARGETS, "nats_bridge_ready": OF_TARGETS})


async def test_a_real_sidecar_has_all_that_they_use(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url("2.15.3")
    here = await EveryKind.make(await raw_peer(url), unique_name("dashboards"))
    leadership = {"bucket": f"LEASES{here.name}"}
    settings = settings_for(url, *here.rules, http={"listen": "127.0.0.1:0"}, leadership=leadership)
    async with running(settings) as bridge:
        await until(lambda: all(supervisor.state == "ready" for supervisor in bridge.supervisors))
        await here.traffic(3)
        await until(lambda: all(supervisor.metrics.progress_ns for supervisor in bridge.supervisors))
        await until(lambda: any(supervisor.status().get("copies") for supervisor in bridge.supervisors))
        seen = await scrape(bridge)
    known: dict[str, set[str]] = {"up": set(OF_TARGETS)}
    for name, labels in seen.samples:
        known.setdefault(name, set(OF_TARGETS)).update(label for label, _ in labels)
    check(known)


@pytest.mark.exhaustive
def test_the_dashboard_follows_grafanas_published_schema(tmp_path: Path) -> None:
    program = go_program("tests/dashboard_schema", tmp_path)
    dashboard = DASHBOARDS / "nats-bridge.json"
    assert _refusal(program, dashboard) == ""
    document = json.loads(dashboard.read_text("utf-8"))
    document["panels"][1]["gridPos"]["hight"] = document["panels"][1]["gridPos"].pop("h")
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps(document), "utf-8")
    assert "unexpected field 'hight'" in _refusal(program, wrong)


def _refusal(program: Path, dashboard: Path) -> str:
    """What is wrong with a dashboard; empty for nothing."""
    ran = subprocess.run([str(program), str(dashboard)], capture_output=True, text=True, check=False)
    assert (ran.returncode == 0) == (ran.stderr == "")
    return ran.stderr
