"""Moments at which a copy could be lost or duplicated: each was a bug, found by a reviewer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from nats_bridge.errors import RuleRefusedError
from nats_bridge.kinds.copying.position.comparing import Resume
from nats_bridge.kinds.copying.position.resuming import Resuming
from tests.live.copies import Copies, record_of
from tests.live.copying.test_keep_sequence import mirror
from tests.live.cut_wire import cut_wire
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import SharedServers
from tests.live.sidecars import running, settings_for
from tests.live.until import until

SECOND = 10**9
Name = Callable[[str], str]


async def fill(here: Copies, *numbers: int) -> None:
    """Store numbered messages in the source."""
    for number in numbers:
        await here.peer.store(f"{here.name}.x".encode(), b"%d" % number)


async def copied(here: Copies) -> list[int]:
    """The source's sequences of the copies, local messages left out."""
    local = f"{here.target}.local".encode()
    return [record_of(message).sequence for message in await here.stored() if message.subject != local]


async def ids_are_forgotten(peer: RawPeer, subject: str) -> None:
    """Wait until the duplicate window is over for everything stored before."""
    block = b"NATS/1.0\r\nNats-Msg-Id: probe\r\n\r\n"
    await peer.store(subject.encode(), b"", block)

    async def stored_again() -> bool:
        return "duplicate" not in await peer.store(subject.encode(), b"", block)

    await until(stored_again)


async def test_nothing_is_sent_again_when_the_target_has_forgotten_the_ids(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """Another client writes long after the copies: then these are not requested again."""
    url = await servers.url(newest_version)
    here = await Copies.make(await raw_peer(url), unique_name("late"), target={"duplicate_window": 3 * SECOND})
    async with running(settings_for(url, here.rule())):
        await fill(here, *range(1, 11))
        await here.holds(10)
        await ids_are_forgotten(here.peer, f"{here.target}.local")
        await fill(here, *range(11, 21))
        await here.holds(22)
    assert await copied(here) == list(range(1, 21))


async def test_an_emptied_target_gets_nothing_twice_after_a_lost_connection(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(newest_version)
    here = await Copies.make(await raw_peer(url), unique_name("empty"), target={"duplicate_window": SECOND})
    async with cut_wire(url) as wire, running(settings_for(wire.url, here.rule())) as bridge:
        await fill(here, *range(1, 11))
        await here.holds(10)
        await ids_are_forgotten(here.peer, f"{here.target}.local")
        await here.peer.api(f"STREAM.PURGE.{here.target}")
        wire.cut()
        await until(lambda: bridge.runs[0].counters.as_dict()["rounds"] > 1 and bridge.runs[0].ready)
        await fill(here, 11)
        await here.holds(1)
    assert await copied(here) == [11]


async def test_a_message_is_not_taken_for_superseded_while_its_subject_has_room(
    twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """A small message is taken where a large one before it was not; a restart finds the large one missing."""
    url = await servers.url(twin_version)
    limits = {"discard": "new", "max_bytes": 20_000, "max_msgs_per_subject": 1000}
    here = await Copies.make(await raw_peer(url), unique_name("room"), target=limits)
    subject, local = f"{here.name}.x".encode(), f"{here.target}.local"
    async with running(settings_for(url, here.rule())) as bridge:
        await fill(here, 1)
        await here.holds(1)
        await here.peer.store(local.encode(), b"x" * 18_000)
        here.peer.publish(subject, b"b" * 2000)
        here.peer.publish(subject, b"abc")
        await until(lambda: bridge.runs[0].counters.as_dict()["waits"] == 1)
        assert bridge.runs[0].counters.as_dict()["copied"] <= 2
    await here.peer.api(f"STREAM.PURGE.{here.target}", {"filter": local})
    async with running(settings_for(url, here.rule())):
        await here.holds(3)
    assert sorted(await copied(here)) == [1, 2, 3]


async def test_a_new_source_whose_publishers_give_ids_is_copied_once(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(newest_version)
    here = await Copies.make(await raw_peer(url), unique_name("again"), target={"duplicate_window": SECOND})
    rule = here.rule(on_recreated="restart")
    async with running(settings_for(url, rule)):
        await fill(here, *range(1, 6))
        await here.holds(5)
    await here.peer.api(f"STREAM.DELETE.{here.name}")
    await here.peer.create_stream(name=here.name, subjects=[f"{here.name}.>"], storage="memory")
    for number in range(5):
        block = b"NATS/1.0\r\nNats-Msg-Id: id%d\r\n\r\n" % number
        await here.peer.store(f"{here.name}.x".encode(), b"new%d" % number, block)
    async with running(settings_for(url, rule)):
        await here.holds(10)
    await ids_are_forgotten(here.peer, f"{here.target}.local")
    async with running(settings_for(url, rule)):
        await fill(here, 6)
        await here.holds(13)
    assert await copied(here) == [1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 6]


async def test_a_local_message_in_a_copys_place_is_noticed_at_the_start(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(newest_version)
    here = await Copies.make(await raw_peer(url), unique_name("place"))
    async with running(settings_for(url, mirror(here))):
        await fill(here, *range(1, 6))
        await here.holds(5)
    await here.peer.store(f"{here.target}.local".encode(), b"mine")
    await fill(here, 6, 7, 8)
    with pytest.raises(RuleRefusedError, match="sequences can be kept no longer"):
        async with running(settings_for(url, mirror(here))):
            pass


async def test_a_target_that_goes_away_while_the_position_is_looked_for(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, target_url = await servers.url("2.10.27"), await servers.url("2.15.3")
    name = unique_name("gone")
    here = await Copies.make(await raw_peer(url), name, target_peer=await raw_peer(target_url))
    original = Resuming.position
    async with cut_wire(target_url) as wire:

        async def position(self: Resuming, *arguments: Any) -> Resume:
            found = await original(self, *arguments)
            wire.hold_back()
            wire.cut()
            monkeypatch.setattr(Resuming, "position", original)
            return found

        connections = {"default": {"servers": [wire.url]}, "there": {"servers": [url]}}
        rule = here.rule(entry={"from": "there"})
        async with running(settings_for(wire.url, rule, connections=connections)) as bridge:
            await fill(here, *range(1, 11))
            await here.holds(10)
            monkeypatch.setattr(Resuming, "position", position)
            wire.cut()
            await until(lambda: Resuming.position is original)
            await fill(here, *range(11, 21))
            wire.let_through()
            await here.holds(20)
            await fill(here, *range(21, 31))
            await here.holds(30)
            await until(lambda: bridge.runs[0].ready)
    await here.are_exact()


async def test_another_rules_missing_permission_does_not_end_a_copying_rule(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url("2.15.3")
    here = await Copies.make(await raw_peer(url), unique_name("mine"))
    async with running(settings_for(url, here.rule())) as bridge:
        run = bridge.runs[0]
        run._refused('permissions violation for publish to "gone.x"')  # type: ignore[attr-defined]
        assert run.error is None
        run._refused(f'permissions violation for publish to "{here.target}.x"')  # type: ignore[attr-defined]
        assert run.error is not None
        await asyncio.sleep(0)
