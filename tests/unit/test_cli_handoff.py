"""`nats-bridge handoff` without a server: exit codes, texts, JSON."""

import json
from pathlib import Path
from typing import Any

import pytest

from nats_bridge.cli import main

NOWHERE = """connections: {default: {servers: ["nats://127.0.0.1:1"], connect_timeout: 0.2}}
rules:
  - {name: eu, kind: sources, stream: T, sources: [{name: S, subject_transforms: [{src: "a.*", dest: "b.$1"}]}]}
  - {name: copy, kind: mirror, stream: M, mirror: {name: S, subject_transforms: [{src: "a.*", dest: "m.$1"}]}}
  - {name: letters, kind: advisories, republish: {src: "$JS.EVENT.ADVISORY.>", dest: "dlq.>"}}
"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    config = tmp_path / "bridge.yaml"
    config.write_text(NOWHERE, "utf-8")

    def call(*arguments: str) -> tuple[Any, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["handoff", "-c", str(config), *arguments])
        printed = capsys.readouterr()
        return ended.value.code, printed.out, printed.err

    return call


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nope"], 2, "rule 'nope': not in the configuration; known rules: eu, copy, letters\n"),
        (["eu", "--after", "S"], 2, "--after S: write SOURCE=SEQUENCE, for example ORDERS=42\n"),
        (["eu", "--after", "S=-1"], 2, "--after S=-1: write SOURCE=SEQUENCE, for example ORDERS=42\n"),
        (["eu", "--after", "X=1"], 2, "--after X=…: rule 'eu' copies nothing from it; its sources are S\n"),
        (["copy"], 1, "stream 'M' cannot become a native mirror: servers refuse that (10055)"),
        (["letters"], 1, "servers do not republish advisories, so no server can take over"),
        (["eu"], 3, "127.0.0.1:1"),
    ],
)
def test_what_it_says(run: Any, arguments: list[str], code: int, said: str) -> None:
    ended, out, err = run(*arguments)
    assert (ended, out) == (code, "")
    assert said in err
    assert err.count("\n") <= 2


@pytest.mark.parametrize(("rule", "code"), [("copy", 1), ("nope", 2), ("eu", 3)])
def test_json_has_the_same_members_whatever_happens(run: Any, rule: str, code: int) -> None:
    ended, out, err = run(rule, "--json")
    assert (ended, err) == (code, "")
    reported = json.loads(out)
    assert (reported["ok"], reported["update"], reported["steps"]) == (False, None, [])
    assert len(reported["problems"]) == 1
