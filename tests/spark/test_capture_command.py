"""`nats-bridge capture` as a process: killed, stopped, and with impossible options."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet
import pytest

from nats_bridge.cli import main
from nats_bridge_spark.capture.folder import SAVED, capture_in
from nats_bridge_spark.capture.place import place_of
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, SharedServers
from tests.spark.waiting import seen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERSION = "2.10.27"
_ONE_A_CHUNK = """
from nats_bridge.cli import main
from nats_bridge_spark.capture import parquet_files
parquet_files.MESSAGES = 1
main()
"""
ROOT = Path(__file__).parents[2]


@contextlib.asynccontextmanager
async def capturing(place: Path, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The running command; its temporary files are below `place`, by which its processes are recognised."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _ONE_A_CHUNK, "capture", *arguments, "--spark", "spark.driver.memory=512m"),
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(place)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def processes_of(place: Path) -> list[str]:
    """The processes that the command has started, itself included, by the environment that they share."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"TMPDIR={place}\0" in (process / "environ").read_text("utf-8", "replace"):
                found.append((process / "cmdline").read_text("utf-8", "replace"))
    return found


def held(kept: Path) -> int:
    capture = capture_in(place_of(str(kept)))
    return capture.messages if capture else 0


def sequences(kept: Path) -> list[int]:
    files = sorted((kept / "messages").rglob("*.parquet"))
    return [sequence for file in files for sequence in pyarrow.parquet.ParquetFile(file).read()["sequence"].to_pylist()]


@pytest.mark.timeout(1800)  # starts Java twice, which takes minutes where a machine is busy beyond all measure
async def test_killed_stopped_and_run_again(
    spark: SparkSession,
    servers: SharedServers,
    raw_peer: OpenPeer,
    tmp_path: Path,
    unique_name: Name,
    capfd: pytest.CaptureFixture[str],
) -> None:
    stream, url, kept = unique_name("COMMAND"), await servers.url(VERSION), tmp_path / "kept"
    peer = await raw_peer(url)
    await peer.create_stream(name=stream, subjects=[stream])
    for _ in range(400):
        await peer.store(stream.encode(), b"x" * 100)
    arguments = (stream, str(kept), "--server", url)
    async with capturing(tmp_path, *arguments) as process:
        await seen(lambda: held(kept) >= 3 or process.returncode is not None)
        process.kill()  # wherever it is now
        _, reported = await process.communicate()
    assert process.returncode == -signal.SIGKILL, reported.decode()
    before = sequences(kept)
    assert before == list(range(1, len(before) + 1))
    await seen(lambda: processes_of(tmp_path) == [])
    async with capturing(tmp_path, *arguments) as process:
        await seen(lambda: held(kept) > len(before) + 1 or process.returncode is not None)
        process.terminate()
        out, reported = await process.communicate()
    assert (process.returncode, out) == (143, b""), reported.decode()
    lines = reported.decode().splitlines()
    assert lines[-1].startswith(f"capture {stream}: stopped by SIGTERM; ")
    assert lines[-1].endswith(f" in {kept}; run the same command to continue")
    assert processes_of(tmp_path) == []
    missing = 400 - held(kept)
    printed = await asyncio.to_thread(command, capfd, stream, str(kept), "--server", url, "--json")
    result = json.loads(printed.out)
    assert (result["messages"], result["messages_held"], result["next_sequence"]) == (missing, 400, 401)
    assert printed.err.splitlines()[-1].startswith(f"capture {stream}: {missing} messages in ")
    assert sequences(kept) == list(range(1, 401))
    assert entries(kept) == [SAVED, "messages"]
    printed = await asyncio.to_thread(command, capfd, stream, str(kept), "--server", url)
    assert printed.out == f"{kept}: 0 messages captured; it holds 400, the next is 401\n"


def command(capfd: pytest.CaptureFixture[str], *arguments: str) -> pytest.CaptureResult[str]:
    """The command in this process, with its session, which it must leave alone."""
    capfd.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["capture", *arguments])
    printed = capfd.readouterr()
    assert ended.value.code == 0, printed.err
    return printed


def entries(kept: Path) -> list[str]:
    return sorted(entry.name for entry in kept.iterdir())


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--server", "nats://127.0.0.1:1"], 3, "nats://127.0.0.1:1"),
        ([], 2, "no server given: use --server nats://127.0.0.1:4222"),
        (["--continuous", "9", "--to", "1"], 2, "--continuous: has no end"),
        (["--from", "yesterday"], 2, "--from: 'yesterday' is not a time"),
        (["--subjects", "a..b"], 2, "--subjects: 'a..b' is not a subject"),
    ],
)
def test_what_cannot_be(
    arguments: list[str], code: int, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    server = [] if "--server" in arguments or not arguments else ["--server", "nats://127.0.0.1:1"]
    with pytest.raises(SystemExit) as ended:
        main(["capture", "ORDERS", str(tmp_path / "kept"), *server, *arguments])
    printed = capfd.readouterr()
    assert (ended.value.code, printed.out) == (code, "")
    assert said in printed.err
    assert len(printed.err.splitlines()) <= 2
    assert not (tmp_path / "kept").exists()
