"""A repair that is killed at any moment: run again, it has stored everything once."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from nats_bridge.bridge.replication import Target
from nats_bridge.bridge.settings import Connection
from nats_bridge.pipeline.connections import connected
from nats_bridge.pipeline.diff.repair.applying import Applying
from tests.live.processes import of_session
from tests.live.raw_messages import RawPeer
from tests.live.stored_messages import stored_messages
from tests.live.until import until
from tests.spark.histories import Stored, block, history
from tests.spark.repairing_process import message
from tests.spark.waiting import PATIENCE

Kept: TypeAlias = tuple[bytes, bytes, bytes]  # subject, header block, payload
COMMAND_KILLS = int(os.environ.get("REPAIR_COMMAND_KILLS", "1"))
COMMAND_DIFFERENCES = int(os.environ.get("REPAIR_COMMAND_DIFFERENCES", "300"))
KILLS, DIFFERENCES = int(os.environ.get("REPAIR_KILLS", "8")), int(os.environ.get("REPAIR_DIFFERENCES", "4000"))


@pytest.fixture
def version() -> str:
    return "2.15.3"


@pytest.mark.exhaustive
@pytest.mark.unstoppable
@pytest.mark.timeout(3600)
async def test_kill_9_at_any_moment_loses_and_doubles_nothing(
    url: str, peer: RawPeer, unique_name: Callable[[str], str]
) -> None:
    """By hand with REPAIR_DIFFERENCES=100000. Without Spark, whose comparison changes nothing and is made each time."""
    stream, bucket = unique_name("IDS"), unique_name("BUCKET")
    each = DIFFERENCES // 2
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"])
    await peer.create_stream(name=bucket, subjects=[f"{bucket}.>"], max_msgs_per_subject=1)
    for number in range(1, each // 2 + 1):
        peer.publish(f"{bucket}.{number}".encode(), b"wrong")
    await peer.store(f"{bucket}.x".encode())
    before = each // 2 + 1

    async def stored(least: int) -> bool:
        states = [(await peer.api(f"STREAM.INFO.{name}"))["state"] for name in (stream, bucket)]
        return bool(sum(state["last_seq"] for state in states) - before >= least)

    for kill in range(1, KILLS + 2):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.spark.repairing_process", url, str(each), stream, bucket),
            stderr=asyncio.subprocess.PIPE,
        )
        if kill <= KILLS:
            least = DIFFERENCES * kill // (KILLS + 2)
            await until(lambda least=least: stored(least))  # type: ignore[misc]
            process.kill()
        _, err = await process.communicate()
    assert process.returncode == 0, err
    found = await stored_messages(peer, stream, each)
    assert sorted(int(one.payload) for one in found) == list(range(1, each + 1))
    states = [(await peer.api(f"STREAM.INFO.{name}"))["state"] for name in (stream, bucket)]
    assert [(state["messages"], state["last_seq"]) for state in states] == [(each, each), (each + 1, each + before)]
    found = await stored_messages(peer, bucket, each + 1)
    assert {one.subject for one in found if one.payload == b"right"} == {
        message(bucket, number, puts=True)[0] for number in range(1, each + 1)
    }


async def test_a_deletion_that_is_repeated_is_done(url: str, peer: RawPeer, unique_name: Callable[[str], str]) -> None:
    """As where the answer to the first one was late; servers refuse the second one."""
    stream = unique_name("GONE")
    await peer.create_stream(name=stream, subjects=[stream])
    for _ in range(4):
        await peer.store(stream.encode())
    async with connected(Connection(servers=(url,))) as connection:
        target = Target.of(await connection.api.stream_info(stream), connection.server_version)
        applying = Applying(connection, target, "sequence", patience=PATIENCE)
        for sequence in (1, 1, 3, 3):
            await applying.delete(sequence, None)
        await applying.close()
    assert (applying.applied.deleted, applying.applied.complete) == (4, True)
    assert await holds(peer, stream, 2)


async def changed(peer: RawPeer, stream: str) -> int:
    """How many messages the stream was given and has lost since it was created."""
    state = (await peer.api(f"STREAM.INFO.{stream}"))["state"]
    return int(2 * state["last_seq"] - state["messages"])


async def differing_by_id(peer: RawPeer, right: str, each: int, folder: Path) -> tuple[list[str], list[Kept]]:
    """Of three messages, one is missing, one is wrong, and one is too much."""
    # The server forgets ids after the shortest window that it takes, before the command has compared.
    await peer.create_stream(name=right, subjects=[f"{right}.>"], duplicate_window=100_000_000)
    lefts: list[Stored] = []
    expected: list[Kept] = []
    for number in range(1, each + 1):
        subject = f"{right}.{number}"
        for name in ("missing", "wrong", "extra"):
            lines = block(b"Nats-Msg-Id: %b %d" % (name.encode(), number), b"A: 1")
            if name != "extra":
                lefts.append(Stored(len(lefts) + 1, subject, lines, b"right"))
                expected.append((subject.encode(), lines, b"right"))
            if name != "missing":
                peer.publish(subject.encode(), b"wrong", lines)
    return [str(history(folder / "left", lefts)), right], expected


async def differing_by_subject(peer: RawPeer, right: str, each: int, _: Path) -> tuple[list[str], list[Kept]]:
    """Of three subjects, one is missing, one has a wrong value, and one is too much."""
    left, kept = f"{right}L", list[Kept]()
    for stream in (left, right):
        await peer.create_stream(name=stream, subjects=[f"{stream}.>"], max_msgs_per_subject=1)
    for number in range(1, each + 1):
        for name in ("missing", "wrong", "extra"):
            subject = f"{name}.{number}".encode()
            if name != "extra":
                peer.publish(b"%b.%b" % (left.encode(), subject), b"right")
                kept.append((b"%b.%b" % (right.encode(), subject), b"", b"right"))
            if name != "missing":
                peer.publish(b"%b.%b" % (right.encode(), subject), b"wrong")
    await until(lambda: holds(peer, left, 2 * each))
    return [left, right, "--transform", f"{left}.>", f"{right}.>"], kept


async def holds(peer: RawPeer, stream: str, messages: int) -> bool:
    return int((await peer.api(f"STREAM.INFO.{stream}"))["state"]["messages"]) == messages


@pytest.mark.exhaustive
@pytest.mark.java
@pytest.mark.unstoppable
@pytest.mark.timeout(7200)  # starts Java for each kill
@pytest.mark.parametrize(("by", "differing"), [("id", differing_by_id), ("subject", differing_by_subject)])
async def test_the_whole_command_is_killed_and_run_again(
    by: str,
    differing: Callable[[RawPeer, str, int, Path], Awaitable[tuple[list[str], list[Kept]]]],
    url: str,
    peer: RawPeer,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """Each kill comes when it changes something.

    By hand with REPAIR_COMMAND_KILLS=20 and REPAIR_COMMAND_DIFFERENCES=100000.
    """
    stream, each = unique_name("KILLED"), COMMAND_DIFFERENCES // 3
    arguments, expected = await differing(peer, stream, each, tmp_path)
    await until(lambda: holds(peer, stream, 2 * each))
    before = await changed(peer, stream)
    changes = 4 * each  # missing ones stored, wrong ones stored and deleted, those too much deleted
    arguments += ["--server", url, "--by", by, "--allow", "order", "--repair", "--delete", "--apply", "--quiet"]
    arguments += ["--master", "local[1]", "--spark", "spark.driver.memory=512m"]

    async def applied(least: int) -> bool:
        return process.returncode is not None or await changed(peer, stream) >= least

    for kill in range(1, COMMAND_KILLS + 2):
        least = await changed(peer, stream) + 1
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "nats_bridge", "diff", *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            if kill <= COMMAND_KILLS:
                await until(lambda least=least: applied(least))  # type: ignore[misc]
        finally:
            if kill <= COMMAND_KILLS and process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
            out, _ = await process.communicate()
        assert process.returncode == 0 or (process.returncode, kill <= COMMAND_KILLS) == (-signal.SIGKILL, True), out
        await until(lambda pid=process.pid: not of_session(pid))  # type: ignore[misc]
        sys.stderr.write(f"{kill}: {process.returncode}, {await changed(peer, stream) - before} of {changes} changes\n")
    assert await changed(peer, stream) - before == changes
    assert await holds(peer, stream, 2 * each)
    found = [(one.subject, one.header_block, one.payload) for one in await stored_messages(peer, stream, 2 * each)]
    if by == "subject":  # what a put adds to the block says what it was compared with
        found = [(subject, b"", payload) for subject, _, payload in found]
    assert sorted(found) == sorted(expected)
