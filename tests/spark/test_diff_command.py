"""`nats-bridge diff` as a command: what it prints, writes and ends with."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

from nats_bridge.cli import main
from tests.spark.histories import Stored, history


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "nats_bridge", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    left = [Stored(number, f"a.{number}", b"", b"%d" % number) for number in range(1, 101)]
    right = [Stored(number, f"a.{number % 99}", b"", b"%d" % number) for number in range(1, 100)]
    return history(tmp_path / "left", left), history(tmp_path / "right", right, stream="R")


@pytest.mark.java
def test_what_is_printed_and_written(sides: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = command("diff", *sides, "--out", out, "--spark", "spark.driver.memory=1g")
    assert ran.returncode == 1, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[0].startswith(f"left   capture {sides[0]}: 100 messages of S, sequences 1 to 100")
    assert lines[3:] == [
        "",
        "99 messages are on both sides; 98 of them are equal",
        "",
        "missing  1  on the left only",
        "    100 (left 100): a.100",
        "subject  1  another subject",
        "    99 (left 99, right 99): a.99 | a.0",
        "",
        "DIFFERENT  2 findings",
    ]
    assert sorted(pyarrow.parquet.read_table(out).to_pylist(), key=lambda row: row["kind"]) == [
        {
            "kind": "missing",
            "identity": "100",
            "left_sequence": 100,
            "right_sequence": None,
            "field": "",
            "left_value": "a.100",
            "right_value": None,
        },
        {
            "kind": "subject",
            "identity": "99",
            "left_sequence": 99,
            "right_sequence": 99,
            "field": "",
            "left_value": "a.99",
            "right_value": "a.0",
        },
    ]


@pytest.mark.usefixtures("spark")
def test_the_result_as_json(sides: tuple[Path, Path], capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["diff", *map(str, sides), "--json"])
    printed = capfd.readouterr()
    assert ended.value.code == 1, printed.err
    reported = json.loads(printed.out)
    assert isinstance(reported["seconds"], float)
    assert reported["seconds"] >= 0
    assert printed.err.splitlines()[-1].startswith("diff left right: ")


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["A", "B"], "A: is taken for a stream (there is no such directory): say where, with --server URL"),
        (["A", "B", "--server", "nats://127.0.0.1:1", "--allow", "size"], "--allow size: is no kind of finding"),
        (["A", "B", "--server", "nats://127.0.0.1:1", "--rule", "r"], "--rule NAME needs -c FILE"),
        (["A", "B", "--server", "nats://127.0.0.1:1", "--transform", "a.*", "b.$2"], "--transform a.* b.$2"),
        (["A", "B", *("--server", "nats://127.0.0.1:1") * 3], "--server: is given 3 times; once is for both sides"),
        (["A", "B", "--by", "name"], "nats-bridge diff: invalid value for '--by'"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_spark_starts(arguments: list[str], reported: str) -> None:
    ran = command("diff", *arguments)
    assert ran.returncode == 2
    assert reported in ran.stderr
    assert len(ran.stderr.splitlines()) <= 2
