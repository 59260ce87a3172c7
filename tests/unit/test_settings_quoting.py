"""An error of a configuration shows the line that it is about, and no secret."""

from pathlib import Path

import pytest

from nats_bridge.cli.entry import main
from nats_bridge.marked_yaml import Mark
from nats_bridge.settings.problems import quoted


def _said(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("bridge.yaml").write_text(text, "utf-8")
    with pytest.raises(SystemExit) as ended:
        main(["check", "-c", "bridge.yaml"])
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_the_command_quotes_every_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "log: {level: loud}\nrules:\n  - name: a\n    kind: republsh\n    stream: S\n"
    assert _said(text, tmp_path, capsys, monkeypatch) == (
        "bridge.yaml:1:14: log.level: unknown value 'loud'; allowed: debug, info, warning, error\n"
        "    log: {level: loud}\n"
        "                 ^\n"
        "bridge.yaml:4:11: rules[0].kind: unknown kind 'republsh'; did you mean 'republish'?\n"
        "        kind: republsh\n"
        "              ^\n"
    )


def test_the_command_quotes_what_is_no_yaml(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _said("rules:\n\t- name: x\n", tmp_path, capsys, monkeypatch) == (
        "bridge.yaml:2:1: a tab cannot indent in YAML; use spaces\n    \\t- name: x\n    ^\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "connections: {a: {servers: [x], password: hunter2}}",
        "connections: {a: {servers: ['nats://me:hunter2@h:1'], what: 1}}",
        "connections:\n  a:\n    token: >\n      hunter2\n    : : :\n",
        "connections:\n  a:\n    nkey_seed: |\n      hunter2\n",
        "connections:\n  a:\n    creds: |\n      hunter2: &&\n\t- hunter2\n",
    ],
)
def test_no_secret_is_quoted(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "hunter2" not in _said(text, tmp_path, capsys, monkeypatch)


def test_what_is_quoted() -> None:
    assert quoted("a: b\nc: d\n", Mark(2, 4)) == "    c: d\n       ^"
    assert quoted("a: \x1b[31m\u200b", Mark(1, 4)) == "    a: \\x1b[31m\\u200b\n       ^"
    assert quoted("\x07ab: c", Mark(1, 3)) == "    \\x07ab: c\n         ^"
    assert quoted("a\n\nb", Mark(2, 1)) == ""
    assert quoted("a", Mark(2, 1)) == ""
    long = "x" * 300 + "HERE" + "y" * 300
    line, mark = quoted(long, Mark(1, 301)).splitlines()
    assert len(line) < 130
    assert line[mark.index("^") :].startswith("HERE")
