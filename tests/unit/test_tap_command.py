"""`nats-bridge tap` without a server: what it refuses, and which permissions it prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nats_bridge.bridge.cli import main
from tests.unit.test_rule_tests import RULES


def _tap(capsys: pytest.CaptureFixture[str], folder: Path, *arguments: str) -> tuple[object, str, str]:
    file = folder / "rules.yaml"
    file.write_text(RULES, "utf-8")
    with pytest.raises(SystemExit) as ended:
        main(["tap", *arguments, "-c", str(file)])
    printed = capsys.readouterr()
    return ended.value.code, printed.out, printed.err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("monitr", "rule 'monitr': not in the configuration; there are monitor, "),
        ("mirrors", "rule 'mirrors': is of kind watch, which makes nothing of messages"),
        ("shards --from-sequence 1", "--from-sequence: rule 'shards' reads no stream, it subscribes to 'in.*'"),
        ("shards --subject other", "--subject: rule 'shards' receives 'in.*' only, not 'other'"),
        ("monitor --subject o..x", "--subject: 'o..x' is no subject"),
        ("monitor --rate 1000", "1000.0 is not in the range"),
    ],
)
def test_what_cannot_be_shown_is_refused(
    arguments: str, problem: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, err = _tap(capsys, tmp_path, *arguments.split())
    assert (code, out) == (2, "")
    assert problem in err


@pytest.mark.parametrize(
    ("rule", "publish", "subscribe"),
    [
        ("monitor", ["$JS.API.STREAM.INFO.S", "$JS.API.STREAM.MSG.GET.S"], ["_INBOX.>"]),
        (
            "gather",
            [f"$JS.API.STREAM.{what}.{stream}" for stream in "AB" for what in ("INFO", "MSG.GET")],
            ["_INBOX.>"],
        ),
        ("shards", [], ["_INBOX.>", "in.*"]),
        ("dead", [], ["$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.*.*", "_INBOX.>"]),
    ],
)
def test_the_permissions_are_printed(
    rule: str, publish: list[str], subscribe: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, err = _tap(capsys, tmp_path, rule, "--permissions")
    assert (code, err) == (0, "")
    printed = re.findall(r'^ +"(\S+)"', out, re.MULTILINE)
    assert sorted(printed) == sorted(publish + subscribe)
