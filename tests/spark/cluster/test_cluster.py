"""The data source on a standalone cluster, with the package sent along: what arrives, and what a lost part does."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from nats.aio.client import Client

from nats_transforms import compile_transform
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Name, Servers, SharedServers
from tests.spark.cluster.standalone import PATIENCE, StandaloneCluster, command_of, descendants

JOBS = Path(__file__).with_name("jobs")
ROOT = Path(__file__).parents[3]
VERSION = "2.10.27"
MESSAGES = 800

pytestmark = pytest.mark.timeout(2 * PATIENCE)

Connect = Callable[..., Awaitable[Client]]


async def filled(peer: RawPeer, stream: str, head: str) -> None:
    """A stream with numbered messages; each third one has headers."""
    await peer.create_stream(name=stream, subjects=[f"{head}.>"])
    for number in range(1, MESSAGES + 1):
        block = b"NATS/1.0\r\nTag: a\r\ntag: %d\r\n\r\n" % number if number % 3 == 0 else b""
        await peer.store(f"{head}.é{number % 7}.{number}".encode(), b"%d" % number, block)


def is_ours(place: Path) -> bool:
    """Whether a directory is the source tree."""
    return place.resolve().is_relative_to(ROOT) and any((place / name).is_dir() for name in ("nats_bridge", "bridge"))


async def stored(peer: RawPeer, stream: str) -> list[tuple[str, bytes]]:
    """Subject and body of all that a stream holds, in its order."""
    count = (await peer.api(f"STREAM.INFO.{stream}"))["state"]["messages"]
    jetstream = peer.client.jetstream()
    messages = [await jetstream.get_msg(stream, number) for number in range(1, count + 1)]
    return [(message.subject or "", message.data or b"") for message in messages]


async def test_a_stream_is_read_and_written_with_only_the_files_sent(
    cluster: StandaloneCluster,
    shipped: Path,
    servers: SharedServers,
    raw_peer: OpenPeer,
    unique_name: Name,
    tmp_path: Path,
) -> None:
    url = await servers.url(VERSION)
    peer = await raw_peer(url)
    stream, target = unique_name("CLUSTER"), unique_name("CLUSTER_TO")
    await filled(peer, stream, "in")
    await peer.create_stream(name=target, subjects=["out.>"])

    job = cluster.submit(JOBS / "through.py", url, stream, target, str(tmp_path), shipped=shipped)
    assert await asyncio.to_thread(job.ended) == 0, job.text[-5000:]

    transform = compile_transform(b"in.*.*", b"out.{{partition(4,1)}}.$2.$1")
    subjects = [f"in.é{number % 7}.{number}".encode() for number in range(1, MESSAGES + 1)]
    expected = [
        ((transform.apply(subject) or b"").decode(), b"%d" % number) for number, subject in enumerate(subjects, 1)
    ]
    rows = sorted(pq.read_table(tmp_path / "rows").to_pylist(), key=lambda row: row["sequence"])
    assert [(row["subject"], row["data"]) for row in rows] == expected
    assert rows[2]["headers"] == [{"name": "Tag", "value": "a"}, {"name": "tag", "value": "3"}]
    assert await stored(peer, target) == expected
    assert {Path(part).name.startswith("part-") for part in (tmp_path / "rows").glob("*.parquet")} == {True}

    seen = json.loads((tmp_path / "where.json").read_text())
    assert seen["master"] == cluster.url
    for task in [*seen["tasks"], seen["driver"]]:
        assert all("nats_bridge.zip/" in file for file in task["files"]), task
        assert task["version"]
        assert not any(is_ours(Path(task["directory"], place)) for place in [".", *task["path"]]), task
    assert all(str(cluster.place) in task["directory"] for task in seen["tasks"])


async def test_a_command_of_ours_is_submitted_through_a_file_of_two_lines(
    cluster: StandaloneCluster,
    shipped: Path,
    servers: SharedServers,
    raw_peer: OpenPeer,
    unique_name: Name,
    tmp_path: Path,
) -> None:
    url = await servers.url(VERSION)
    stream = unique_name("CLUSTER_MAIN")
    await filled(await raw_peer(url), stream, "main")
    given = ["capture", stream, str(tmp_path / "captured"), "--server", url]
    job = cluster.submit(JOBS / "nats_bridge_main.py", *given, shipped=shipped)
    assert await asyncio.to_thread(job.ended) == 0, job.text[-5000:]
    assert f"/captured: {MESSAGES:,} messages (1 to {MESSAGES}) captured in 1 file" in job.text


async def test_a_killed_executor_costs_nothing_and_doubles_nothing(
    cluster: StandaloneCluster,
    shipped: Path,
    servers: SharedServers,
    raw_peer: OpenPeer,
    unique_name: Name,
    tmp_path: Path,
) -> None:
    url = await servers.url(VERSION)
    peer = await raw_peer(url)
    stream, head, target = unique_name("KILLED"), unique_name("killed"), unique_name("KILLED_TO")
    await filled(peer, stream, head)
    # Only one stream can have the subjects: the target gets them when the source has been closed to them.
    await peer.api(f"STREAM.UPDATE.{stream}", {"name": stream, "subjects": [f"no.{head}"]})
    await peer.create_stream(name=target, subjects=[f"{head}.>"])

    job = cluster.submit(JOBS / "held.py", url, stream, target, str(tmp_path), shipped=shipped)
    await asyncio.to_thread(job.made, tmp_path / "executor")
    executor = int((tmp_path / "executor").read_text())
    assert "CoarseGrainedExecutorBackend" in command_of(executor)
    assert executor in {pid for worker in cluster.workers for pid, _ in descendants(worker.process.pid)}
    os.kill(executor, signal.SIGKILL)

    assert await asyncio.to_thread(job.ended) == 0, job.text[-5000:]
    expected = [(f"{head}.é{number % 7}.{number}", b"%d" % number) for number in range(1, MESSAGES + 1)]
    assert sorted(await stored(peer, target)) == sorted(expected)
    assert "Lost executor" in job.text


async def test_a_server_that_one_task_cannot_reach_is_one_clear_error(
    cluster: StandaloneCluster, shipped: Path, native_server: Servers, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    async with native_server(VERSION) as server:
        url = server.url
        peer = await raw_peer(url)
        await filled(peer, "CUT", "cut")
        job = cluster.submit(JOBS / "cut.py", url, "CUT", str(tmp_path), shipped=shipped, conf={"spark.cores.max": "1"})
        await asyncio.to_thread(job.made, tmp_path / "read")
        await peer.close()
    (tmp_path / "gone").touch()

    assert await asyncio.to_thread(job.ended) == 3, job.text[-5000:]
    reported = (tmp_path / "error").read_text()
    assert url.removeprefix("nats://") in reported
    assert reported.count("\n") <= 1
    assert "Traceback" not in reported
    assert "Exception" not in reported
