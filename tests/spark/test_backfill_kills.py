"""Whatever is killed, and whenever: after the next attempt the target holds each message once, in order."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from nats_bridge.client.stream_identity import KnownStream
from nats_bridge.errors import RuleRefusedError
from nats_bridge.settings import Settings
from nats_bridge_spark.backfill.history_copy import HistoryCopy
from nats_bridge_spark.errors import DataLostError
from tests.live.copies import Copies
from tests.live.cut_wire import CutWire
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecars import running, settings_for
from tests.live.until import LIMIT, until
from tests.spark.backfills import backfilled
from tests.spark.waiting import seen

if TYPE_CHECKING:
    pass

MESSAGES = 3000
WINDOW = 0.1
"""Seconds for which the targets remember message ids, the least that servers take."""


async def filled(copies: Copies, messages: int = MESSAGES) -> None:
    """Put messages into the source whose payloads are never the beginning of another one's."""
    stored = [
        copies.peer.store(f"{copies.name}.{number % 7}".encode(), b"number %d." % number, b"NATS/1.0\r\nA: b\r\n\r\n")
        for number in range(1, messages + 1)
    ]
    for answer in await asyncio.gather(*stored):
        assert "error" not in answer, answer


def settings_of(copies: Copies, url: str, wire: CutWire) -> Settings:
    """The rule, with the wire before the target."""
    connections = {"default": {"servers": [url]}, "west": {"servers": [wire.url]}}
    return settings_for(url, copies.rule(to="west"), connections=connections)


@pytest.fixture
async def wired(servers: SharedServers, unique_name: Name, raw_peer: OpenPeer) -> AsyncIterator[Callable[..., Any]]:
    """`copies, wire, settings = await wired(version)`: a source with messages, and a target behind a wire."""
    opened = []

    async def make(version: str) -> tuple[Copies, CutWire, Settings]:
        url = await servers.url(version)
        copies = await Copies.make(
            await raw_peer(url), unique_name("kills"), target={"duplicate_window": round(WINDOW * 1e9)}
        )
        await filled(copies)
        wire = CutWire(url)
        await wire.open()
        opened.append(wire)
        return copies, wire, settings_of(copies, url, wire)

    yield make
    for wire in opened:
        await wire.close()


async def stopped_at(copies: Copies, wire: CutWire, number: int) -> None:
    """Wait until the target has this message, and nothing more gets through."""
    await copies.holds(number)
    await until(lambda: wire.is_silent)


@pytest.mark.parametrize("version", ["2.10.27", "2.15.3"])
async def test_a_connection_that_breaks(version: str, wired: Callable[..., Any]) -> None:
    copies, wire, settings = await wired(version)
    job = asyncio.create_task(backfilled(settings))
    for number in (1, 700, 2000):
        wire.fall_silent_after(b"number %d." % number)
        await stopped_at(copies, wire, number)
        wire.cut()
        wire.speak_again()
    (summary,) = await job
    await copies.are_exact()
    assert (summary.read, summary.next_sequence) == (MESSAGES, MESSAGES + 1)
    (again,) = await backfilled(settings)
    assert (again.copied, again.read, again.next_sequence) == (0, 0, MESSAGES + 1)


async def command(config: Path) -> asyncio.subprocess.Process:
    """`nats-bridge backfill`, started."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nats_bridge", "backfill", "-c", str(config), "rule", "--json"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )


async def test_a_killed_job_is_run_again(wired: Callable[..., Any], tmp_path: Path) -> None:
    copies, wire, settings = await wired("2.10.27")
    config = tmp_path / "bridge.yaml"
    document = settings.model_dump(mode="json", by_alias=True, exclude_unset=True)
    config.write_text(yaml.safe_dump(document))
    wire.fall_silent_after(b"number 1234.")
    process = await command(config)
    try:
        await seen(lambda: wire.is_silent or process.returncode is not None)
        assert process.returncode is None, await process.communicate()
        await copies.holds(1234)
    finally:
        if process.returncode is None:
            process.kill()
        async with asyncio.timeout(LIMIT):
            await process.communicate()
    wire.cut()
    wire.speak_again()
    await asyncio.sleep(2 * WINDOW)
    process = await command(config)
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    (reported,) = json.loads(out)["sources"]
    assert (reported["source"], reported["target"], reported["next_sequence"]) == (
        copies.name,
        copies.target,
        MESSAGES + 1,
    )
    assert 0 < reported["copied"] < MESSAGES
    await copies.are_exact()
    # The live rule continues where the history ends.
    before = MESSAGES
    async with running(settings):
        await filled(copies, 50)
        await copies.holds(before + 50)
    await copies.are_exact()


async def test_a_target_recreated_during_a_backfill_is_filled_by_the_next_one(wired: Callable[..., Any]) -> None:
    copies, wire, settings = await wired("2.10.27")
    await filled(copies, 12_000)
    job = asyncio.create_task(backfilled(settings))
    wire.fall_silent_after(b"number 10000.")
    await stopped_at(copies, wire, MESSAGES + 10_000)
    await copies.peer.recreate_stream(copies.target)
    wire.cut()
    wire.speak_again()
    with pytest.raises(DataLostError, match="since the job was planned: run the backfill again"):
        await job
    await backfilled(settings)
    await copies.are_exact()


THEN: Any = {
    "created": "then",
    "state": {"messages": 0, "first_seq": 0, "last_seq": 0, "last_ts": "0001-01-01T00:00:00Z"},
}


def test_a_target_that_has_less_than_it_had_confirmed_ends_the_task() -> None:
    plan: Any = SimpleNamespace(rule="rule", stream="T", source=SimpleNamespace(name="S"))
    history: Any = None
    copy = HistoryCopy(plan, history, known=KnownStream("then"), held=10)
    copy.check(10, THEN)
    with pytest.raises(DataLostError, match="comes from 'S' up to sequence 9, and has held it up to 10 since"):
        copy.check(9, THEN)
    copy.held = 4096
    copy.check(4096, THEN)
    with pytest.raises(DataLostError, match="comes from 'S' up to sequence 10, and has held it up to 4096 since"):
        copy.check(10, THEN)
    with pytest.raises(RuleRefusedError, match="stream 'S' was recreated while its history was copied"):
        copy.check(4096, {**THEN, "created": "now"})
