"""Messages that are restored: each under its own sequence, whatever is killed, cut or sent."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from typing import Any

import pytest

from nats_bridge_spark.errors import DataLostError, PipelineError, RowError
from nats_bridge_spark.restore import task
from nats_bridge_spark.restore.configuration import probe_of, restoring_config, subject_of
from tests.live.cut_wire import cut_wire
from tests.live.raw_messages import RawPeer
from tests.live.shared_servers import Name
from tests.live.stored_messages import stored_messages
from tests.live.until import until
from tests.spark.histories import Stored, block
from tests.spark.restoring_process import MARK, config_of, restored, rows

KILLS, LAST = int(os.environ.get("RESTORE_KILLS", "5")), int(os.environ.get("RESTORE_LAST", "20000"))
GENERATION = "01234567"


@pytest.fixture(params=["2.10.27", "2.15.3"])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def stream(unique_name: Name) -> str:
    return unique_name("RESTORED")


async def created(peer: RawPeer, stream: str, **config: Any) -> str:
    """The stream, closed; when it was created."""
    first = {"first_seq": config.pop("first_seq")} if "first_seq" in config else {}
    made = await peer.create_stream(**restoring_config({**config_of(stream), **config}, MARK, GENERATION), **first)
    return str(made["created"])


async def held(peer: RawPeer, stream: str) -> list[tuple[int, bytes, bytes, bytes]]:
    """What the stream holds."""
    state = (await peer.api(f"STREAM.INFO.{stream}"))["state"]
    found = await stored_messages(peer, stream, state["messages"])
    return [(one.sequence, one.subject, one.header_block, one.payload) for one in found]


def as_stored(stored: list[Stored]) -> list[tuple[int, bytes, bytes, bytes]]:
    return [(each.sequence, each.subject.encode(), each.block or b"", each.data or b"") for each in stored]


async def last_of(peer: RawPeer, stream: str) -> int:
    return int((await peer.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"])


async def test_rows_get_their_sequences_headers_and_subjects(url: str, peer: RawPeer, stream: str) -> None:
    """With sequences that are missing at the beginning, in between and at the end, and an id that comes again."""
    stored = [
        Stored(41, "a.b", b"", b"first"),
        Stored(42, "$KV.x", block(b"Tag: a", b"tag:  B "), b""),
        Stored(50, "a.b", block(b"Nats-Msg-Id: one"), b"1"),
        Stored(51, "a.b", block(b"Nats-Msg-Id: two"), b"2"),
        Stored(52, "a.b", block(b"Nats-Msg-Id: one"), b"3"),
        Stored(53, "a.b", block(b"Nats-Msg-Id: one"), b"4"),
    ]
    at = await created(peer, stream, first_seq=41)
    counts = await restored(url, stream, at, stored, 60)
    assert (counts["restored"], counts["changed"]) == (6, 0)
    assert await held(peer, stream) == as_stored(stored)
    state = (await peer.api(f"STREAM.INFO.{stream}"))["state"]
    assert (state["first_seq"], state["last_seq"]) == (41, 60)
    # A second time: everything is there, and compared.
    assert (await restored(url, stream, at, stored, 60))["restored"] == 0


async def test_more_ids_than_are_remembered(
    url: str, peer: RawPeer, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six ids that come again, and five of them are remembered when the sixth comes."""
    monkeypatch.setattr(task, "_IDS", 5)
    stored = [Stored(number, "a", block(b"Nats-Msg-Id: %d" % (number**2 % 11))) for number in range(1, 31)]
    at = await created(peer, stream)
    assert (await restored(url, stream, at, stored, 30))["restored"] == 30
    assert await held(peer, stream) == as_stored(stored)


async def test_what_would_act_or_be_refused_is_left_out_of_headers(url: str, peer: RawPeer, stream: str) -> None:
    stored = [
        Stored(1, "a", block(b"Nats-Expected-Stream: OTHER", b"A: 1", b"Nats-Request-Info: {}")),
        Stored(2, "a", block(b"Nats-Expected-Last-Sequence: 77")),
        Stored(3, "a", block(b"Nats-Batch-Id: b", b"Nats-Batch-Sequence: 1")),
        Stored(4, "a", block(b"Nats-Rollup: all")),
    ]
    at = await created(peer, stream)
    counts = await restored(url, stream, at, stored, 4)
    assert counts["changed"] == 4
    assert [lines for _, _, lines, _ in await held(peer, stream)] == [block(b"A: 1"), b"", b"", b""]
    # What is stored is compared without these headers, too: servers remove Nats-Request-Info before they store it.
    assert (await restored(url, stream, at, stored, 4))["restored"] == 0


async def test_a_rollup_acts_as_it_did(url: str, peer: RawPeer, stream: str) -> None:
    stored = [Stored(1, "a"), Stored(2, "b"), Stored(3, "a", block(b"Nats-Rollup: sub")), Stored(4, "c")]
    config = {**config_of(stream), "allow_rollup_hdrs": True}
    await restored(url, stream, await created(peer, stream), stored, 4, config=config)
    assert [sequence for sequence, *_ in await held(peer, stream)] == [2, 3, 4]


async def test_no_other_client_writes_to_it(url: str, peer: RawPeer, stream: str) -> None:
    """Neither on the subjects that it will have, nor with what an earlier attempt has in flight."""
    at = await created(peer, stream)
    stored = list(rows(100))
    await restored(url, stream, at, stored, 50)
    for subject in (f"{stream}.x", subject_of(stream, GENERATION, "orders.1")):
        assert await peer.request_raw(subject.encode(), b"not stored") is None
    assert (await peer.store(probe_of(stream).encode()))["seq"] == 51  # a stranger who insists
    with pytest.raises(DataLostError, match="holds another message than the capture under sequence 51"):
        await restored(url, stream, at, stored, 100)


@pytest.mark.parametrize("version", ["2.15.3"])  # older ones do not answer this
async def test_a_message_that_is_refused_is_named(url: str, peer: RawPeer, stream: str) -> None:
    at, config = await created(peer, stream), {**config_of(stream), "allow_rollup_hdrs": True}
    stored = [Stored(1, "a"), Stored(2, "a", block(b"Nats-Rollup: x")), Stored(3, "a")]
    refusal = r'rollup value invalid: "x" \(10111\)'
    with pytest.raises(RowError, match=rf"'{stream}': refuses message 2: {refusal}; delete the stream"):
        await restored(url, stream, at, stored[:2], 2, config=config)
    with pytest.raises(RowError, match=rf"'{stream}': refuses message 2: {refusal}; delete the stream"):
        await restored(url, stream, at, stored, 3, config=config)
    # What came behind it has its sequence.
    with pytest.raises(
        DataLostError, match="holds another message than the capture under sequence 2, left by a restore"
    ):
        await restored(url, stream, at, stored, 3, config=config)


async def test_a_message_that_would_be_a_command_is_named(url: str, peer: RawPeer, stream: str) -> None:
    command = "$JS.API.STREAM.DELETE.VICTIM"
    at = await created(peer, stream)
    with pytest.raises(RowError, match=re.escape(f"subject '{command}': nothing can be published on '{command}'")):
        await restored(url, stream, at, [Stored(1, "a"), Stored(2, command)], 2)


async def test_another_stream_of_that_name_is_left_alone(url: str, peer: RawPeer, stream: str) -> None:
    made = await peer.create_stream(name=stream, subjects=[stream])
    with pytest.raises(PipelineError, match="was changed by another process while it was restored"):
        await restored(url, stream, made["created"], [Stored(1, "a")], 1)


async def test_a_connection_that_breaks(url: str, peer: RawPeer, stream: str) -> None:
    """Again and again: each round keeps out what the one before had in flight."""
    last = 20_000
    stored = list(rows(last))
    at = await created(peer, stream)
    async with cut_wire(url) as wire:
        job = asyncio.create_task(restored(wire.url, stream, at, stored, last))
        for part in range(1, 6):
            await until(lambda part=part: _reaches(peer, stream, last * part // 8))  # type: ignore[misc]
            wire.cut()
        counts = await job
    assert counts["restored"] == len(stored)
    assert await held(peer, stream) == as_stored(stored)


async def _reaches(peer: RawPeer, stream: str, least: int) -> bool:
    return await last_of(peer, stream) >= least


@pytest.mark.exhaustive
@pytest.mark.unstoppable
@pytest.mark.timeout(3600)
async def test_kill_9_at_any_moment_loses_and_doubles_nothing(url: str, peer: RawPeer, stream: str) -> None:
    """By hand with RESTORE_LAST=1000000 RESTORE_KILLS=20."""
    await created(peer, stream)
    for kill in range(1, KILLS + 2):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.spark.restoring_process", url, stream, str(LAST)),
            stderr=asyncio.subprocess.PIPE,
        )
        if kill <= KILLS:
            least = LAST * kill // (KILLS + 2)
            await until(lambda least=least: _reaches(peer, stream, least))  # type: ignore[misc]
            process.kill()
        _, err = await process.communicate()
    assert process.returncode == 0, err
    assert await held(peer, stream) == as_stored(list(rows(LAST)))
    assert await last_of(peer, stream) == LAST
