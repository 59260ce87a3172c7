"""Copies into a target that is far away: a window as wide as the distance, and nothing lost or duplicated of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from benchmarks.far_wire import FarWire
from nats_bridge.app.sidecar import Sidecar
from nats_bridge.consuming import stream_range
from nats_bridge.consuming.replay import Replay
from nats_bridge.kinds.copying.position import comparing, resuming
from nats_bridge.kinds.copying.position.comparing import Resume
from nats_bridge.kinds.copying.position.entry_streams import EntryStreams
from nats_bridge.kinds.copying.position.resuming import Confirmed, Resuming
from nats_bridge.kinds.copying.run import CopyRun
from nats_bridge.kinds.copying.target import Target
from nats_bridge.kinds.copying.writing.in_flight import LEAST
from nats_conformance.native_servers import NativeCluster
from tests.live.copies import Copies
from tests.live.copying.forgotten_ids import FORGETFUL, forgotten
from tests.live.faults.answered_load import answered_load
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import SharedServers
from tests.live.sidecar_process import sidecar_processes
from tests.live.sidecars import running, settings_for
from tests.live.tiers import on_each_version
from tests.live.until import until

ONE_WAY = 0.25  # seconds: 16,000 messages/s would be all that a window of `LEAST` carries
MESSAGES = 40_000


async def filled(peer: RawPeer, name: str, first: int, last: int) -> None:
    """Numbered messages, some in flight at the same time."""
    for start in range(first, last + 1, 2000):
        for number in range(start, min(start + 2000, last + 1) - 1):
            peer.publish(f"{name}.{number % 7}".encode(), b"number %d" % number)
        await peer.store(f"{name}.{min(start + 2000, last + 1) % 7}".encode(), b"the last of some")


def far(near_url: str, wire: FarWire) -> dict[str, Any]:
    """Connections to the source and, far away, to the target."""
    return {"default": {"servers": [near_url]}, "far": {"servers": [wire.url]}}


def in_flight(bridge: Sidecar) -> int:
    """Messages that are sent and not known to be stored."""
    return sum(supervisor.metrics.in_flight() for supervisor in bridge.supervisors)


@pytest.mark.exhaustive  # a kill is a cut as well, and more
async def test_a_cut_in_the_middle_of_a_wide_window_loses_and_doubles_nothing(
    newest_version: str, servers: SharedServers, raw_peer: OpenPeer, unique_name: Callable[[str], str]
) -> None:
    url = await servers.url(newest_version)
    here = await Copies.make(await raw_peer(url), unique_name("far"))
    await filled(here.peer, here.name, 1, MESSAGES)
    async with (
        FarWire(url, ONE_WAY) as wire,
        running(settings_for("", here.rule(to="far"), connections=far(url, wire))) as bridge,
    ):
        await until(lambda: in_flight(bridge) > LEAST * 3 // 2)
        wire.cut()
        await until(lambda: bridge.runs[0].counters.as_dict()["rounds"] > 1)
        await here.holds(MESSAGES)
        await until(lambda: in_flight(bridge) == 0)
    await here.are_exact()


@pytest.mark.unstoppable
@on_each_version(times=1)
async def test_kills_in_the_middle_of_a_wide_window_lose_and_double_nothing(
    version: str,
    times: int,
    servers: SharedServers,
    raw_peer: OpenPeer,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    url = await servers.url(version)
    here = await Copies.make(await raw_peer(url), unique_name("far"))
    await filled(here.peer, here.name, 1, MESSAGES)
    chance = random.Random(version)
    async with FarWire(url, ONE_WAY) as wire, sidecar_processes(tmp_path) as start:
        for turn in range(times):
            process = await start("", here.rule(to="far"), connections=far(url, wire))
            first, last = (MESSAGES * each // (times + 1) for each in (turn, turn + 1))
            await here.holds(chance.randrange(first, last))
            await process.kill()
        process = await start("", here.rule(to="far"), connections=far(url, wire))
        await process.ready()  # what was in flight at the kill may be all that was missing
        await here.holds(MESSAGES)
        assert await process.stop() == 0, process.log
    await here.are_exact()


@pytest.mark.unstoppable
@pytest.mark.exhaustive
@on_each_version(times=1)
async def test_kills_after_leader_changes_lose_and_double_nothing(
    version: str,
    times: int,
    servers: SharedServers,
    raw_peer: OpenPeer,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """What was in flight at the change is lost, and the sidecar is killed before it could know."""
    url = await servers.url(version)
    chance = random.Random(version)
    async with NativeCluster(version) as cluster, answered_load(cluster.urls, "none") as load:
        name = unique_name("far")
        config = {"name": f"T{name}", "subjects": [f"T{name}.>"], "num_replicas": 3}
        await load.api(f"STREAM.CREATE.T{name}", config)
        target_peer = await raw_peer(cluster.urls[0])
        peer = await raw_peer(url)
        here = Copies(peer, target_peer, name)
        await peer.create_stream(name=name, subjects=[f"{name}.>"])
        await filled(peer, name, 1, MESSAGES)
        async with FarWire(cluster.urls[0], ONE_WAY) as wire, sidecar_processes(tmp_path) as start:
            for turn in range(times):
                process = await start("", here.rule(to="far"), connections=far(url, wire))
                await here.holds(MESSAGES * (turn + 1) // (times + 1))
                await load.api(f"STREAM.LEADER.STEPDOWN.T{name}")
                await asyncio.sleep(chance.uniform(0, 2 * ONE_WAY))  # whenever: what is stored until then differs
                await process.kill()
            process = await start("", here.rule(to="far"), connections=far(url, wire))
            await process.ready()  # what was in flight at the kill may be all that was missing
            await here.holds(MESSAGES)
            assert await process.stop() == 0, process.log
        # What a change of leaders dropped is stored behind later ones.
        assert sorted(await here.source_sequences()) == list(range(1, MESSAGES + 1))


FEW = 8
"""Copies that are compared in detail, in place of many thousands."""


@pytest.fixture
def checks_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_range, "FIRST_PIECE", 4)
    for module in (resuming, comparing):
        monkeypatch.setattr(module, "NEWEST", FEW)
    monkeypatch.setattr(comparing, "CHECKED_COPIES", 8 * FEW)


async def arranged(here: Copies, url: str, copied: int, order: list[int], entry: dict[str, Any] | None = None) -> None:
    """Have the sidecar's own copies, of which there are so many, in the target in this order, and no ids remembered."""
    async with running(settings_for(url, here.rule(entry=entry or {}))):
        await here.holds(copied)
    by_sequence = dict(zip(await here.source_sequences(), await here.stored(), strict=True))
    await forgotten(here.peer, here.target)
    await here.peer.api(f"STREAM.PURGE.{here.target}")
    for sequence in order:
        message = by_sequence[sequence]
        here.peer.publish(message.subject, message.payload, message.header_block)
    await here.holds(len(order))


@pytest.mark.usefixtures("checks_few")
@pytest.mark.parametrize("is_half", [False, True], ids=["everything", "every other message"])
@pytest.mark.parametrize("behind", [FEW // 2, 3 * FEW, 6 * FEW])
async def test_a_copy_that_was_left_out_far_behind_the_newest_is_made(
    behind: int,
    is_half: bool,
    newest_version: str,
    servers: SharedServers,
    raw_peer: OpenPeer,
    unique_name: Callable[[str], str],
) -> None:
    url = await servers.url(newest_version)
    here = await Copies.make(await raw_peer(url), unique_name("left"), target=FORGETFUL)
    end = 20 * FEW
    for number in range(1, end + 1):
        await here.peer.store(f"{here.name}.{'odd' if number % 2 else 'even'}".encode(), b"%d" % number)
    entry = {}
    if is_half:
        transform = {"src": f"{here.name}.odd", "dest": f"{here.target}.odd"}
        entry = {"subject_transforms": [transform]}
    wanted = [number for number in range(1, end + 1) if number % 2 or not is_half]
    order = [*wanted]
    lost = order.pop(-1 - behind)
    await arranged(here, url, len(wanted), order, entry)
    async with running(settings_for(url, here.rule(entry=entry))) as bridge:
        await here.holds(len(wanted))
        await here.peer.store(f"{here.name}.odd".encode(), b"live")
        await here.holds(len(wanted) + 1)
        counted = bridge.runs[0].counters.as_dict()
    assert await here.source_sequences() == [*order, lost, end + 1]
    assert counted["out_of_order"] == 1


@pytest.mark.parametrize("is_half", [False, True], ids=["everything", "every other message"])
async def test_messages_a_round_left_out_unconfirmed_are_counted_and_logged(
    is_half: bool, newest_version: str, servers: SharedServers, raw_peer: OpenPeer, unique_name: Callable[[str], str]
) -> None:
    url = await servers.url(newest_version)
    here = await Copies.make(await raw_peer(url), unique_name("late"), target=FORGETFUL)
    for number in range(1, 13):
        await here.peer.store(f"{here.name}.{'odd' if number % 2 else 'even'}".encode(), b"%d" % number)
    entry = {}
    if is_half:
        entry = {"subject_transforms": [{"src": f"{here.name}.odd", "dest": f"{here.target}.odd"}]}
    order = [number for number in range(1, 13) if number % 2 or not is_half]
    copied, confirmed = len(order), order[3]
    del order[4]
    await arranged(here, url, copied, order, entry)
    there = frozenset(number for number in order if number > confirmed)
    async with running(settings_for(url, here.rule(entry=entry))) as bridge:
        await here.holds(copied)
        (run,) = bridge.runs
        assert isinstance(run, CopyRun)
        plan, api = run.plans[0], bridge.connections["default"].api
        resuming = Resuming(plan)
        infos = await api.stream_info(here.target), await api.stream_info(here.name)
        target_last = int(infos[0]["state"]["last_seq"]) - 1  # without what this sidecar has made of the hole
        streams = EntryStreams(
            plan.sourcing,
            Replay(api, here.name, plan.filters, headers_only=True),
            infos[1],
            api,
            infos[0],
            Target.of(infos[0], newest_version),
            target_last,
        )

        await resuming.position(streams)  # the streams are known from here on
        with capture_logs() as logs:
            resuming.remember(Confirmed(confirmed, target_last), 0, None)
            assert await resuming.position(streams) == Resume(confirmed, there, missing=1)
            assert await resuming.position(streams) == Resume(confirmed, there)
    (entry_logged,) = [entry for entry in logs if entry["event"] == "copying.incomplete"]
    assert entry_logged["missing"] == 1


@pytest.mark.usefixtures("checks_few")
async def test_what_is_complete_is_not_read_again(
    newest_version: str, servers: SharedServers, raw_peer: OpenPeer, unique_name: Callable[[str], str]
) -> None:
    """Also where the source has lost messages, and where an earlier round has stored some behind later ones."""
    url = await servers.url(newest_version)
    here = await Copies.make(await raw_peer(url), unique_name("whole"), target=FORGETFUL)
    end = 20 * FEW
    for number in range(1, end + 1):
        await here.peer.store(f"{here.name}.x".encode(), b"%d" % number)
    order = [*range(1, end + 1)]
    late, gone = end - 4 * FEW, end - 3 * FEW
    order.remove(late)
    order.insert(-2 * FEW, late)
    await arranged(here, url, end, order)
    await here.peer.api(f"STREAM.MSG.DELETE.{here.name}", {"seq": gone})
    async with running(settings_for(url, here.rule())) as bridge:
        await here.peer.store(f"{here.name}.x".encode(), b"live")
        await here.holds(end + 1)
        assert bridge.runs[0].counters.as_dict()["received"] == 1
    assert await here.source_sequences() == [*order, end + 1]
