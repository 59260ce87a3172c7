"""A stream is recognised by its messages: servers before 2.14 change creation times, and clocks of servers differ."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from nats_bridge.consuming import stream_range
from nats_bridge.kinds.copying.position import entry_streams
from nats_conformance.native_servers import NativeServer
from tests.live.copies import Copies
from tests.live.creation_times import CHANGE_IT, change_creation_time
from tests.live.cut_wire import cut_wire
from tests.live.faults.power_cut import LostEnd
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.sidecar_process import Seen
from tests.live.sidecars import running, settings_for
from tests.live.tiers import by_turns
from tests.live.until import until

pytestmark = pytest.mark.usefixtures("quick_reconnects")

_WINDOW_NS = 100_000_000


def _block(message_id: bytes | None) -> bytes:
    return b"NATS/1.0\r\nNats-Msg-Id: %b\r\n\r\n" % message_id if message_id else b""


async def _store(peer: RawPeer, name: str, first: int, last: int, ids: str) -> None:
    for number in range(first, last + 1):
        own = ids == "all" or (ids == "some" and number % 2)
        await peer.store(f"{name}.x".encode(), b"%d" % number, _block(b"id-%d" % number if own else None))


@by_turns("version, ids, runs_during", CHANGE_IT, ["none", "some", "all"], [True, False])
async def test_another_creation_time_of_the_source_of_copies(
    version: str,
    ids: str,
    runs_during: bool,
    native_server: Callable[..., NativeServer],
    raw_peer: OpenPeer,
) -> None:
    async with native_server(version) as server, native_server("2.15.3") as target:
        here = await Copies.make(
            await raw_peer(server.url),
            "S",
            target_peer=await raw_peer(target.url),
            target={"duplicate_window": _WINDOW_NS},
        )
        connections = {"default": {"servers": [target.url]}, "far": {"servers": [server.url]}}
        settings = settings_for("", here.rule(entry={"from": "far"}), connections=connections)
        await _store(here.peer, "S", 1, 20, ids)
        async with running(settings) as bridge:
            await here.holds(20)
            if runs_during:
                here.peer = await change_creation_time(server, raw_peer, "S")
                await _store(here.peer, "S", 21, 40, ids)
                await here.holds(40)
                assert bridge.supervisors[0].counters()["recreated_streams"] == 0
        if not runs_during:
            here.peer = await change_creation_time(server, raw_peer, "S")
            await _store(here.peer, "S", 21, 40, ids)
        for last in (41, 42):
            async with running(settings):
                await _store(here.peer, "S", last, last, ids)
                await here.holds(last)
        await here.are_exact()


@by_turns("version, busy", CHANGE_IT, [False, True])
async def test_another_creation_time_of_the_target_of_copies(
    version: str,
    busy: bool,
    native_server: Callable[..., NativeServer],
    raw_peer: OpenPeer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not busy:  # as with thousands of copies, over minutes: a round reads a part of them
        monkeypatch.setattr(stream_range, "FIRST_PIECE", 8)
        monkeypatch.setattr(entry_streams, "TOGETHER_NS", 1_000_000)
    async with native_server("2.15.3") as server, native_server(version) as target:
        here = await Copies.make(
            await raw_peer(server.url),
            "S",
            target_peer=await raw_peer(target.url),
            target={"duplicate_window": _WINDOW_NS},
        )
        connections = {"default": {"servers": [target.url]}, "far": {"servers": [server.url]}}
        settings = settings_for("", here.rule(entry={"from": "far"}), connections=connections)
        async with running(settings) as bridge:
            for number in range(1, 41):
                await _store(here.peer, "S", number, number, "none")
                await here.holds(number)
            storing = asyncio.create_task(_store(here.peer, "S", 41, 1040 if busy else 40, "none"))
            here.target_peer = await change_creation_time(target, raw_peer, here.target)
            await until(lambda: bridge.supervisors[0].counters()["rounds"] > 1)
            await storing
            await _store(here.peer, "S", 1041, 1060, "none")
            await here.holds(1060 if busy else 60)
            assert bridge.supervisors[0].counters()["out_of_order"] == 0
        await here.are_exact()


@by_turns("version, more", CHANGE_IT, [{}, {"durable": False}, {"delivery": "at_least_once"}])
async def test_another_creation_time_of_a_republished_stream(
    version: str,
    more: dict[str, Any],
    native_server: Callable[..., NativeServer],
    raw_peer: OpenPeer,
) -> None:
    async with native_server(version) as server, native_server("2.15.3") as target:
        peer = await raw_peer(server.url)
        await peer.create_stream(name="S", subjects=["S.>"])
        seen = await Seen.of(await raw_peer(target.url), "out.>")
        connections = {"default": {"servers": [target.url]}, "far": {"servers": [server.url]}}
        rule = {
            "name": "rule",
            "stream": "S",
            "from": "far",
            "republish": {"src": "S.>", "dest": "out.>"},
            "start": "first",
            **more,
        }
        await _store(peer, "S", 1, 20, "none")
        async with running(settings_for("", rule, connections=connections)) as bridge:
            await seen.count(20)
            peer = await change_creation_time(server, raw_peer, "S")
            await _store(peer, "S", 21, 40, "none")
            await seen.until_sequence(40)
            counters = bridge.supervisors[0].counters()
        assert counters["recreated_streams"] == counters["lost"] == counters["vanished"] == 0
        assert seen.sequences == list(range(1, 41))


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
@by_turns("version", CHANGE_IT)
async def test_another_creation_time_of_a_stream_that_lost_all_its_messages(
    version: str, delivery: str, native_server: Callable[..., NativeServer], raw_peer: OpenPeer, enduring_peer: OpenPeer
) -> None:
    """It is taken for a new one, but its durable consumer is behind the first new messages."""
    server = native_server(version).start()
    async with native_server("2.15.3") as target, cut_wire(server.url) as wire:
        peer = await enduring_peer(server.url)
        await peer.create_stream(name="S", subjects=["S.>"])
        end = LostEnd(server, peer, "S")
        await end.sync()
        seen = await Seen.of(await raw_peer(target.url), "out.>")
        connections = {"default": {"servers": [target.url]}, "far": {"servers": [wire.url]}}
        republish = {"src": "S.>", "dest": "out.>"}
        rule = {"name": "rule", "stream": "S", "from": "far", "republish": republish, "delivery": delivery}
        async with running(settings_for("", rule, connections=connections)) as bridge:
            await _store(peer, "S", 1, 20, "none")
            await seen.count(20)
            wire.hold_back()
            await end.lose(_store(peer, "S", 1, 3, "none"))
            later = await change_creation_time(server, raw_peer, "S")
            wire.let_through()
            await seen.count(23)
            await _store(later, "S", 4, 4, "none")
            await seen.count(24)
            assert bridge.supervisors[0].counters()["recreated_streams"] == 1
        assert seen.sequences == [*range(1, 21), *range(1, 5)]
