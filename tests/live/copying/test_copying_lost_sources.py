"""A source loses its end while no sidecar runs, and its newest copies are of lost messages.

The copies that are compared need not reach back to the place of the loss: they are read in small pieces here.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nats_bridge.consuming import stream_range
from nats_bridge.errors import RuleRefusedError
from nats_bridge.kinds.copying.position import entry_streams
from nats_bridge.settings import Settings
from nats_conformance.native_servers import NativeServer
from tests.live.copies import Copies
from tests.live.cut_wire import cut_wire
from tests.live.faults.power_cut import LostEnd
from tests.live.raw_messages import OpenPeer
from tests.live.sidecar_process import Load
from tests.live.sidecars import running, settings_for
from tests.live.tiers import by_turns

KEPT, COPIED = 60, 100
Servers = Callable[..., NativeServer]
VERSIONS = ["2.15.3", pytest.param("2.9.10", marks=pytest.mark.exhaustive), "2.10.27"]


@pytest.fixture(autouse=True)
def _short_tails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_range, "FIRST_PIECE", 8)
    monkeypatch.setattr(entry_streams, "TOGETHER_NS", 0)


async def _after_a_loss(
    server: NativeServer, enduring_peer: OpenPeer, *, kept: int, copied: int, new: int, with_ids: bool = False
) -> tuple[Copies, Load, Settings]:
    """Copy messages. While no sidecar runs, the source then loses those after `kept`, and gets new ones.

    Args:
        with_ids: whether the messages have ids of their publisher.
    """
    server.start()
    peer = await enduring_peer(server.url)
    here = await Copies.make(peer, "S")
    load, settings = Load(peer, "S"), settings_for(server.url, here.rule())
    end = LostEnd(server, peer, "S")

    async def store(first: int, messages: int) -> None:
        await (_store_with_ids(here, first, messages) if with_ids else load.burst(messages))

    await store(1, kept)
    await end.sync()
    await store(kept + 1, copied - kept)
    async with running(settings):
        await here.holds(copied)
    await end.lose(store(copied + 1, new))
    return here, load, settings


async def _store_with_ids(here: Copies, first: int, messages: int) -> None:
    """Store messages in the source, with ids of their publisher."""
    for number in range(first, first + messages):
        await here.peer.store(b"S.1", b"%d" % number, b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % number)


async def _new_messages_are_copied(
    server: NativeServer, enduring_peer: OpenPeer, new: int, *, kept: int = KEPT, with_ids: bool = False
) -> None:
    here, _, settings = await _after_a_loss(server, enduring_peer, kept=kept, copied=COPIED, new=new, with_ids=with_ids)
    async with running(settings):
        await here.holds(COPIED + new)
        assert await here.source_sequences() == [*range(1, COPIED + 1), *range(kept + 1, kept + new + 1)]


@by_turns("version, new", VERSIONS, [10, 35, 90])
async def test_a_source_loses_more_than_is_compared(
    new: int, version: str, native_server: Servers, enduring_peer: OpenPeer
) -> None:
    await _new_messages_are_copied(native_server(version), enduring_peer, new)


@by_turns("version", VERSIONS)
async def test_new_messages_with_their_publishers_ids_are_not_sent_again(
    version: str, native_server: Servers, enduring_peer: OpenPeer
) -> None:
    here, load, settings = await _after_a_loss(native_server(version), enduring_peer, kept=3, copied=5, new=1)
    async with running(settings):
        await here.holds(6)
        await here.peer.store(b"S.1", b"new", b"NATS/1.0\r\nNats-Msg-Id: new\r\n\r\n")
        await here.holds(7)
    async with running(settings) as bridge:
        await load.burst(1)
        await here.holds(8)
        assert await here.source_sequences() == [1, 2, 3, 4, 5, 4, 5, 6]
        assert bridge.supervisors[0].counters()["duplicates"] == 0, "5 is in the target"


@by_turns("version, new", VERSIONS, [10, 35])
async def test_a_source_loses_more_messages_with_ids_than_are_compared(
    new: int, version: str, native_server: Servers, enduring_peer: OpenPeer
) -> None:
    """Publishers' ids have no times. Older copies show that it is the same stream."""
    await _new_messages_are_copied(native_server(version), enduring_peer, new, with_ids=True)


@by_turns("version", VERSIONS)
async def test_a_removed_message_with_an_id_does_not_hide_new_ones(
    version: str, native_server: Servers, enduring_peer: OpenPeer
) -> None:
    """The source has no message under the sequences of the newest copies, and other ones before these."""
    server = native_server(version)
    here, _, settings = await _after_a_loss(server, enduring_peer, kept=KEPT, copied=COPIED, new=40, with_ids=True)
    await here.peer.delete_messages("S", range(COPIED - 4, COPIED + 1))
    async with running(settings):
        await here.holds(COPIED + 35)
        assert await here.source_sequences() == [*range(1, COPIED + 1), *range(KEPT + 1, COPIED - 4)]


@pytest.mark.usefixtures("quick_reconnects")
@by_turns("version", VERSIONS)
async def test_a_running_sidecar_compares_the_last_message_that_it_read(
    version: str, native_server: Servers, enduring_peer: OpenPeer
) -> None:
    """Source and target are on one server, so the round ends before its reader compares anything."""
    server = native_server(version)
    server.start()
    here = await Copies.make(await enduring_peer(server.url), "S")
    end = LostEnd(server, here.peer, "S")
    async with cut_wire(server.url) as wire, running(settings_for(wire.url, here.rule())) as bridge:
        await _store_with_ids(here, 1, KEPT)
        await here.holds(KEPT)
        await end.sync()
        await _store_with_ids(here, KEPT + 1, COPIED - KEPT)
        await here.holds(COPIED)
        wire.hold_back()
        await end.lose(_store_with_ids(here, COPIED + 1, 40))
        await here.peer.delete_messages("S", range(COPIED - 4, COPIED + 1))
        wire.let_through()
        await here.holds(COPIED + 35)
        assert await here.source_sequences() == [*range(1, COPIED + 1), *range(KEPT + 1, COPIED - 4)]
        assert bridge.supervisors[0].counters()["shorter_streams"] == 1


@by_turns("version", VERSIONS)
async def test_a_source_loses_all_messages_with_ids(
    version: str, native_server: Servers, enduring_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No copy is of a message that the source has. It was created before them, so it is not a new one."""
    monkeypatch.setattr(entry_streams, "_IN_FLIGHT_NS", 0)
    await _new_messages_are_copied(native_server(version), enduring_peer, 10, kept=0, with_ids=True)


@by_turns("version", VERSIONS)
async def test_a_source_that_was_recreated_with_other_ids_is_a_new_one(
    version: str, native_server: Servers, enduring_peer: OpenPeer
) -> None:
    """No older copy shows anything else."""
    server = native_server(version)
    server.start()
    peer = await enduring_peer(server.url)
    here = await Copies.make(peer, "S")
    settings = settings_for(server.url, here.rule())
    await _store_with_ids(here, 1, COPIED)
    async with running(settings):
        await here.holds(COPIED)
    await peer.recreate_stream("S")
    await _store_with_ids(here, COPIED + 1, COPIED)
    with pytest.raises(RuleRefusedError, match="set on_recreated: restart"):
        async with running(settings):
            pass
