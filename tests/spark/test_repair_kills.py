"""A repair that is killed at any moment: run again, it has stored everything once."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable

import pytest

from tests.live.raw_messages import RawPeer
from tests.live.stored_messages import stored_messages
from tests.live.until import until
from tests.spark.repairing_process import message

KILLS, DIFFERENCES = int(os.environ.get("REPAIR_KILLS", "20")), int(os.environ.get("REPAIR_DIFFERENCES", "4000"))


@pytest.fixture
def version() -> str:
    return "2.15.1"


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
