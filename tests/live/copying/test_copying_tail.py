"""A start finds the newest copy in the target, whatever others have stored behind it."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from nats_bridge.consuming import stream_range
from nats_bridge.kinds.copying.position import comparing, entry_streams, resuming
from nats_transforms.timestamp import nanoseconds_of
from tests.live.copies import Copies, record_of
from tests.live.copying.forgotten_ids import FORGETFUL, forgotten
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecars import running, settings_for
from tests.live.tiers import by_turns


@pytest.mark.parametrize("others", [0, 30])
async def test_what_was_copied_is_not_read_again(
    others: int, servers: SharedServers, raw_peer: OpenPeer, unique_name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_range, "FIRST_PIECE", 4)
    url = await servers.url("2.15.3")
    here = await Copies.make(await raw_peer(url), unique_name("tail"))
    for number in range(5):
        await here.peer.store(f"{here.name}.{number}".encode())
    async with running(settings_for(url, here.rule())):
        await here.holds(5)
    for _ in range(others):
        await here.peer.store(f"{here.target}.local".encode())
    async with running(settings_for(url, here.rule())) as bridge:
        await here.peer.store(f"{here.name}.live".encode())
        await here.holds(5 + others + 1)
        assert bridge.runs[0].counters.as_dict()["received"] == 1


async def test_a_copy_that_was_lost_before_many_of_others_is_made(
    servers: SharedServers, raw_peer: OpenPeer, unique_name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three copies are in flight, a change of leaders loses the second, and the sidecar is killed."""
    monkeypatch.setattr(stream_range, "FIRST_PIECE", 4)
    url = await servers.url("2.15.3")
    here = await Copies.make(await raw_peer(url), unique_name("lost"), target=FORGETFUL)
    for number in range(3):
        await here.peer.store(f"{here.name}.{number}".encode())
    async with running(settings_for(url, here.rule())):
        await here.holds(3)
    first, _, third = await here.stored()
    await forgotten(here.peer, here.target)
    await here.peer.api(f"STREAM.PURGE.{here.target}")
    await here.peer.store(first.subject, first.payload, first.header_block)
    for _ in range(30):
        await here.peer.store(f"{here.target}.local".encode())
    await here.peer.store(third.subject, third.payload, third.header_block)
    async with running(settings_for(url, here.rule())):
        await here.holds(33)
    assert [record_of(message).sequence for message in await here.stored() if b"-Source: " in message.header_block] == [
        1,
        3,
        2,
    ]


async def test_a_copy_that_was_lost_in_a_burst_after_a_pause_is_made(
    servers: SharedServers, raw_peer: OpenPeer, unique_name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The burst has more copies than are compared at first. The piece read also has the copy before the pause."""
    monkeypatch.setattr(comparing, "NEWEST", 4)
    monkeypatch.setattr(resuming, "NEWEST", 4)
    url = await servers.url("2.15.3")
    here = await Copies.make(await raw_peer(url), unique_name("burst"), target=FORGETFUL)
    for number in range(20):
        await here.peer.store(f"{here.name}.{number}".encode())
    async with running(settings_for(url, here.rule())):
        await here.holds(20)
    copies = await here.stored()
    await forgotten(here.peer, here.target)
    await here.peer.api(f"STREAM.PURGE.{here.target}")
    lost = copies.pop(4)
    for each in copies:
        last = await here.peer.store(each.subject, each.payload, each.header_block)
    second, newest = [await _stored_ns(here, int(last["seq"]) - before) for before in (17, 0)]
    monkeypatch.setattr(entry_streams, "TOGETHER_NS", newest - second)
    async with running(settings_for(url, here.rule())):
        await here.holds(20)
    assert (await here.stored())[-1].subject == lost.subject


@by_turns(
    "version, entry, is_old, is_assumed, order",
    ["2.15.3", "2.9.10", "2.10.27"],
    [
        ({}, False, False, [8, 10, *range(1, 8), 9]),
        ({}, True, True, [8, 10, 9]),
        ({"opt_start_seq": 8}, False, False, [8, 10, 9]),
        ({"opt_start_seq": 2}, False, True, [8, 10, 9]),
    ],
)
async def test_a_target_that_lost_all_copies_but_those_in_flight(
    version: str,
    entry: dict[str, Any],
    is_old: bool,
    is_assumed: bool,
    order: list[int],
    servers: SharedServers,
    raw_peer: OpenPeer,
    unique_name: Name,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has never stored as many messages as must have been copied before. The entry may have had another start."""
    if is_old:
        monkeypatch.setattr(resuming, "TOGETHER_NS", -(10**15))
    url = await servers.url(version)
    here = await Copies.make(await raw_peer(url), unique_name("emptied"))
    for number in range(10):
        await here.peer.store(f"{here.name}.{number}".encode())
    async with running(settings_for(url, here.rule())):
        await here.holds(10)
    copies = await here.stored()
    await here.peer.recreate_stream(here.target)
    for each in (copies[7], copies[9]):
        await here.peer.store(each.subject, each.payload, each.header_block)
    with capture_logs() as logs:
        async with running(settings_for(url, here.rule(entry=entry))) as bridge:
            await here.holds(len(order))
            assert await here.source_sequences() == order
            counters = bridge.supervisors[0].counters()
    assert (counters["shorter_targets"], counters["duplicates"]) == (len(order) > 3, 0)
    assert counters["out_of_order"] == len(order) - 2
    assert ("copying.assumed_deleted" in [event["event"] for event in logs]) == is_assumed


async def _stored_ns(here: Copies, sequence: int) -> int:
    answer = await here.peer.api(f"STREAM.MSG.GET.{here.target}", {"seq": sequence})
    return nanoseconds_of(answer["message"]["time"])
