"""`nats-bridge diff` as a command: what it prints, writes and ends with."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

from nats_bridge.cli import main
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Servers
from tests.spark.engines import ENGINES
from tests.spark.histories import Stored, history
from tests.spark.waiting import seen


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "nats_bridge", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    left = [Stored(number, f"a.{number}", b"", b"%d" % number) for number in range(1, 101)]
    right = [Stored(number, f"a.{number % 99}", b"", b"%d" % number) for number in range(1, 100)]
    return history(tmp_path / "left", left), history(tmp_path / "right", right, stream="R")


@pytest.mark.parametrize("spark", [pytest.param(True, marks=pytest.mark.java), False])
def test_what_is_printed_and_written(spark: bool, sides: tuple[Path, Path], tmp_path: Path) -> None:
    """Settings of Spark are a choice of Spark; without them few messages need none."""
    out = tmp_path / "out"
    ran = command("diff", *sides, "--out", out, *(["--spark", "spark.driver.memory=1g"] if spark else []))
    assert ("starting Spark" in ran.stderr) == spark
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


@pytest.mark.parametrize("engine", ENGINES)
def test_the_result_as_json(
    engine: str, request: pytest.FixtureRequest, sides: tuple[Path, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    if engine == "spark":
        request.getfixturevalue("spark")
    capfd.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["diff", *map(str, sides), "--json", "--engine", engine])
    printed = capfd.readouterr()
    assert ended.value.code == 1, printed.err
    reported = json.loads(printed.out)
    assert isinstance(reported["seconds"], float)
    assert reported["seconds"] >= 0
    assert printed.err.splitlines()[-1].startswith("diff left right: ")


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["A", "B"], "A: is not a directory, so it is a stream, and its server is missing: use --server nats://"),
        (["A", "B", "--server", "nats://127.0.0.1:1", "--allow", "size"], "--allow size: unknown kind of finding"),
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


def test_findings_are_not_written_over(sides: tuple[Path, Path], tmp_path: Path) -> None:
    ran = command("diff", *sides, "--out", tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == f"--out {tmp_path}: already exists; name an empty directory, or a new one\n"


def test_an_address_of_another_kind_is_refused(sides: tuple[Path, Path]) -> None:
    ran = command("diff", sides[0], "hdfs://host/right")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == (
        "hdfs://host/right: is neither a directory of this machine nor an address in S3 (s3://BUCKET/DIR)\n"
    )


async def test_a_job_that_is_stopped(native_server: Servers, raw_peer: OpenPeer, tmp_path: Path) -> None:
    """While it reads, unless it was faster than the signal."""
    async with native_server("2.15.3") as server:
        peer = await raw_peer(server.url)
        for stream in ("A", "B"):
            await peer.create_stream(name=stream, subjects=[stream])
            for _ in range(60):
                await peer.store(stream.encode(), b"x" * 500_000)
        words = [sys.executable, "-m", "nats_bridge", "diff", "A", "B", "--server", server.url, "--engine", "local"]
        process = await asyncio.create_subprocess_exec(
            *words,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
        await seen(lambda: os.listdir(tmp_path) != [] or process.returncode is not None)  # noqa: PTH208
        process.terminate()
        _, printed = await process.communicate()
    if process.returncode != 0:
        assert process.returncode == 143, printed
        assert printed.decode().splitlines()[-1] == "diff A B: stopped by SIGTERM"
    assert os.listdir(tmp_path) == []  # noqa: PTH208
