"""The tests of a configuration: what rules of every kind make of a message, without a server."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from nats_bridge.app.reload.plan import plan_reload
from nats_bridge.cli import main
from nats_bridge.errors import ConfigError
from nats_bridge.jobs.rule_tests import run_tests
from nats_bridge.settings import Settings, loads

ROOT = Path(__file__).parents[2]
RULES = """
rules:
  - {name: monitor, kind: republish, stream: S, republish: {src: "o.*", dest: "m.$1"}, exclude: [o.secret]}
  - {name: bare, kind: republish, stream: S, republish: {src: "o.*", dest: "m.$1", headers_only: true}, dialect: "2.9"}
  - {name: slice, kind: republish, stream: S, republish: {src: "o.*", dest: "m.{{split(1,-)}}"}, dialect: native}
  - name: gather
    kind: sources
    stream: T
    sources:
      - {name: A, subject_transforms: [{src: "o.*", dest: "a.$1"}], exclude: [o.secret]}
      - {name: B, subject_transforms: [{src: "o.x", dest: "b.x"}]}
  - {name: eu, kind: republish, stream: S, republish: {src: "o.*", dest: "eu.$1"}, where: {header: R, equals: eu}}
  - {name: eu-copies, kind: sources, stream: E, sources: [{name: A, where: {header: R, equals: eu}}]}
  - {name: twin, kind: mirror, stream: M, mirror: {name: A, filter_subject: o.x}}
  - {name: settings, kind: kv_sources, bucket: NEW, sources: [{bucket: OLD}]}
  - name: shards
    kind: subject_transform
    stream: I
    subject_transform: {src: "in.*", dest: "i.{{partition(3,1)}}.$1"}
  - name: dead
    kind: advisories
    republish: {src: "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.*.*", dest: "dlq.$1.$2"}
  - {name: mirrors, kind: watch}
"""


def _settings(tests: str) -> Settings:
    return loads(f"{RULES}\ntests:\n  - {tests}\n", Path(), "rules.yaml", {})


@pytest.mark.parametrize(
    "test",
    [
        "{rule: monitor, given: {subject: o.x, payload: p}, expect: [{subject: m.x, payload: p, headers: {"
        'Nats-Stream: S, Nats-Subject: o.x, Nats-Sequence: "1", Nats-Last-Sequence: "0",'
        ' Nats-Time-Stamp: "2026-01-01T00:00:00Z", Nats-Msg-Size: null}}]}',
        "{rule: monitor, given: {subject: o.x, sequence: 7, last_sequence: 3, headers: {A: b},"
        ' time: "2026-02-03T04:05:06.5Z"}, expect: [{subject: m.x, headers: {A: b, Nats-Sequence: "7",'
        ' Nats-Last-Sequence: "3", Nats-Time-Stamp: "2026-02-03T04:05:06.5Z"}}]}',
        "{rule: monitor, given: {subject: o.secret}, expect: []}",
        "{rule: monitor, given: {subject: other}, expect: []}",
        '{rule: bare, given: {subject: o.x, payload: four}, expect: [{subject: m.x, payload: "",'
        ' headers: {Nats-Msg-Size: "4", Nats-Time-Stamp: null}}]}',
        "{rule: slice, given: {subject: o.a-b}, expect: [{subject: m.a.b}]}",
        "{rule: gather, given: {subject: o.x}, expect: [{subject: a.x}, {subject: b.x}]}",
        '{rule: gather, given: {subject: o.x, stream: A, headers: {Nats-Batch-Id: "1"}},'
        ' expect: [{subject: a.x, headers: {Nats-Batch-Id: null, Nats-Stream-Source: "A 1 o.* a.$1 o.x"}}]}',
        "{rule: gather, given: {subject: o.secret}, expect: []}",
        "{rule: eu, given: {subject: o.x, headers: {R: eu}}, expect: [{subject: eu.x}]}",
        "{rule: eu, given: {subject: o.x, headers: {R: eu-west}}, expect: []}",
        "{rule: eu, given: {subject: o.x, headers: {r: eu}}, expect: []}",
        "{rule: eu-copies, given: {subject: o.x, headers: {R: eu}}, expect: [{subject: o.x}]}",
        "{rule: eu-copies, given: {subject: o.x}, expect: []}",
        "{rule: twin, given: {subject: o.x}, expect: [{subject: o.x}]}",
        "{rule: twin, given: {subject: o.y}, expect: []}",
        "{rule: settings, given: {subject: $KV.OLD.a.b}, expect: [{subject: $KV.NEW.a.b}]}",
        "{rule: shards, given: {subject: in.x}, expect: [{subject: i.0.x}]}",
        "{rule: dead, given: {subject: $JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.S.C}, expect: [{subject: dlq.S.C}]}",
    ],
)
def test_a_rule_makes_what_is_expected(test: str) -> None:
    assert [verdict.differences for verdict in run_tests(_settings(test))] == [()]


@pytest.mark.parametrize(
    ("test", "differences"),
    [
        ("{rule: monitor, given: {subject: o.x}, expect: []}", ["a message to 'm.x', expected none"]),
        (
            "{rule: monitor, given: {subject: p.x}, expect: [{subject: m.x}]}",
            ["no message to 'm.x'", "left out: 'p.x' does not match o.*"],
        ),
        (
            "{rule: gather, given: {subject: o.secret, stream: A}, expect: [{subject: a.secret}]}",
            ["no message to 'a.secret'", "left out: exclude: o.secret"],
        ),
        (
            "{rule: eu, given: {subject: o.x, headers: {R: us}}, expect: [{subject: eu.x}]}",
            ["no message to 'eu.x'", "left out: where: its header R is not 'eu'"],
        ),
        *(
            (
                f"{{rule: {rule}, given: {{subject: x}}, expect: [{{subject: y}}]}}",
                ["no message to 'y'", f"left out: 'x' does not match {pattern}"],
            )
            for rule, pattern in {
                "shards": "in.*",
                "dead": "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.*.*",
                "twin": "o.x",
            }.items()
        ),
        ("{rule: monitor, given: {subject: o.x}, expect: [{subject: m.y}]}", ["a message to 'm.x', expected 'm.y'"]),
        (
            "{rule: monitor, given: {subject: o.x, payload: a}, expect: [{subject: m.x, payload: b}]}",
            ["payload 'a', expected 'b'"],
        ),
        (
            "{rule: monitor, given: {subject: o.x}, expect: [{subject: m.x, headers: {Nats-Stream: null, A: b,"
            ' Nats-Sequence: "2"}}]}',
            ["Nats-Stream: 'S', expected no header", "A: no header, expected 'b'", "Nats-Sequence: '1', expected '2'"],
        ),
        (
            "{rule: slice, given: {subject: o.-}, expect: []}",
            ["no client can publish the result: 'm.' has an empty token, no subscription can receive it"],
        ),
    ],
)
def test_what_is_not_as_expected_is_said(test: str, differences: list[str]) -> None:
    (verdict,) = run_tests(_settings(test))
    assert list(verdict.differences) == differences


@pytest.mark.parametrize(
    ("test", "problem"),
    [
        ("{rule: monitr, given: {subject: a}, expect: []}", "tests[0].rule: no rule 'monitr'; did you mean 'monitor'?"),
        ("{rule: monitor, given: {subject: a}}", "tests[0]: 'expect' is missing"),
        ("{rule: monitor, given: {subject: a.*}, expect: []}", "tests[0].given.subject: 'a.*' cannot be published to"),
        (
            "{rule: monitor, given: {subject: a, stream: S}, expect: []}",
            "tests[0].given.stream: rule 'monitor' copies no streams; remove it",
        ),
        (
            "{rule: gather, given: {subject: a, stream: C}, expect: []}",
            "tests[0].given.stream: rule 'gather' does not copy from 'C', only from A, B",
        ),
        (
            '{rule: monitor, given: {subject: a, headers: {A: "b\\r\\nC: d"}}, expect: []}',
            "tests[0].given.headers: A: 'b\\r\\nC: d': a header's value must be one line",
        ),
        (
            '{rule: monitor, given: {subject: a, headers: {"A:": b}}, expect: []}',
            "tests[0].given.headers: 'A:' is not the name of a header; it must not contain a colon or white space",
        ),
        (
            '{rule: monitor, given: {subject: a, time: "2026-01-01"}, expect: []}',
            "tests[0].given.time: '2026-01-01': must be a time in UTC, like 2026-01-01T00:00:00Z",
        ),
    ],
)
def test_a_test_that_cannot_be_run_is_refused_at_its_place(test: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)) as caught:
        _settings(test)
    line = RULES.count("\n") + 3
    assert str(caught.value).startswith(f"rules.yaml:{line}:")


def test_a_reload_that_changes_tests_alone_does_nothing() -> None:
    one, other = (_settings(f"{{rule: monitor, given: {{subject: {subject}}}, expect: []}}") for subject in "ab")
    assert plan_reload(one, other).is_empty


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[Any, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["check", *arguments])
    printed = capsys.readouterr()
    return ended.value.code, printed.out, printed.err


def test_the_page_shows_what_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs/testing-rules.md").read_text("utf-8")
    (config,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    good, bad = (shown.partition("\n")[2] for shown in re.findall(r"```console\n(.*?)```", page, re.DOTALL))
    file = tmp_path / "rules.yaml"
    file.write_text(config, "utf-8")
    assert _run(capsys, "-c", str(file)) == (0, good.replace("rules.yaml", str(file)), "")
    file.write_text(config.replace("subject: monitor.eu.1", "subject: monitor.orders.eu.1"), "utf-8")
    code, out, _ = _run(capsys, "-c", str(file))
    assert (code, out) == (1, f"{bad}ok   internal orders are not\n2 tests: 1 passed, 1 failed\n")


def test_the_answer_for_programs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(
        f"{RULES}\ntests: [{{rule: monitor, given: {{subject: o.x}}, expect: [{{subject: m.y}}]}}]\n", "utf-8"
    )
    code, out, _ = _run(capsys, "-c", str(file), "--json")
    answer = json.loads(out)
    assert (code, answer["ok"], answer["untested"][:2]) == (1, False, ["bare", "slice"])
    assert answer["tests"] == [
        {
            "name": "monitor: o.x",
            "rule": "monitor",
            "ok": False,
            "made": ["m.x"],
            "differences": ["a message to 'm.x', expected 'm.y'"],
        }
    ]


def test_the_example_passes(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _run(capsys, "-c", str(ROOT / "config/tested-rules.yaml"))
    assert code == 0
    assert out.endswith("3 tests: 3 passed, 0 failed\n")
