"""A stream loses its end and grows again, while deliveries go on and the connection to another server stays.

So a new leader without the newest messages looks. Here the stream's server is a leaf, which the sidecar reaches
through a hub. Its stream is set back, and its consumer is not.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nats_bridge.consuming import lost_end
from nats_bridge.kinds.copying import round as rounds
from nats_bridge.kinds.copying import run
from nats_conformance.native_servers import NativeServer, free_port
from nats_conformance.native_servers.native_server import HOST
from tests.live.copies import Copies, record_of
from tests.live.faults.power_cut import LostEnd, PowerCut
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.sidecar_process import sequence_of
from tests.live.sidecars import running, settings_for
from tests.live.tiers import by_turns
from tests.live.until import LIMIT, until

KEPT, LOST, NEW = 50, 50, 70
Servers = Callable[..., NativeServer]


@pytest.fixture
def any_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch counts as the first one after a pause, because the servers of this test are back at once."""
    monkeypatch.setattr(lost_end, "_PAUSED_BEATS", 0.0)
    monkeypatch.setattr(lost_end, "_PAUSES", 1000)


def _leaf(version: str, native_server: Servers) -> tuple[NativeServer, NativeServer]:
    """A hub without streams, and its leaf."""
    port = free_port()
    hub = native_server(version, config=f'leafnodes {{listen: "{HOST}:{port}"}}', jetstream=False).start()
    remote = (
        f'leafnodes {{remotes: [{{url: "nats-leaf://{HOST}:{port}"}}], reconnect: "100ms"}}\njetstream {{domain: leaf}}'
    )
    return hub, native_server(version, config=remote).start()


async def _store(peer: RawPeer, messages: int) -> None:
    for number in range(messages):
        await peer.store(b"s.a", b"%d" % number)


@pytest.mark.usefixtures("any_pause", "quick_reconnects")
@by_turns("delivery, by", ["at_least_once", "at_most_once"], ["this process", "an earlier process"])
async def test_new_messages_under_sequences_that_were_read(
    delivery: str, by: str, newest_version: str, native_server: Servers, enduring_peer: OpenPeer
) -> None:
    hub, leaf = _leaf(newest_version, native_server)
    peer, other = await enduring_peer(leaf.url), await enduring_peer(hub.url)
    await peer.create_stream(name="S", subjects=["s.>"])
    seen = await other.collect("out.>")
    republish = {"src": "s.>", "dest": "out.>"}
    rule = {"name": "r", "stream": "S", "republish": republish, "start": "first", "delivery": delivery, "durable": True}
    connections = {"default": {"servers": [hub.url], "domain": "leaf"}}
    end = LostEnd(leaf, peer, "S")
    await _store(peer, KEPT)
    await end.sync()
    await _store(peer, LOST)
    settings = settings_for(hub.url, rule, connections=connections)
    if by == "an earlier process":
        async with running(settings):
            await seen.count(KEPT + LOST)
    async with running(settings) as sidecar:
        counters = sidecar.supervisors[0].counters
        await seen.count(KEPT + LOST)
        await end.lose(_store(peer, NEW))
        again = list(range(KEPT + 1, KEPT + NEW + 1))
        if delivery == "at_least_once":
            await until(lambda: counters()["shorter_streams"] == 1)
            await until(lambda: [sequence_of(message) for message in seen.messages[-NEW:]] == again)
            return
        # A check that was faster than the deliveries lets the rule read everything again, and nothing is lost.
        await until(lambda: len(seen.messages) + counters()["lost"] == KEPT + LOST + NEW)
        assert counters()["shorter_streams"] == (counters()["lost"] == 0)


@pytest.mark.usefixtures("quick_reconnects")
@by_turns("version, kept, others", ["2.10.27", "2.15.3"], [0, 2], [0, 3, 9])
async def test_copies_whose_sequences_others_have_taken(
    version: str,
    kept: int,
    others: int,
    native_server: Servers,
    enduring_peer: OpenPeer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next copy seems to follow the lost ones. Without other messages, the target itself is shorter."""
    monkeypatch.setattr(rounds, "EVERY_SECOND", 0.0)
    if others:
        monkeypatch.setattr(run, "WITHOUT_ADVISORY", LIMIT)
    hub, leaf = _leaf(version, native_server)
    source = native_server(version).start()
    here = await Copies.make(
        await enduring_peer(source.url), "S", target_peer=await enduring_peer(leaf.url), target={"subjects": ["T.>"]}
    )
    entry = {"from": "source", "subject_transforms": [{"src": "S.>", "dest": "T.S.>"}]}
    connections = {"default": {"servers": [hub.url], "domain": "leaf"}, "source": {"servers": [source.url]}}

    async def copies() -> list[int]:
        return [record_of(each).sequence for each in await here.stored() if each.subject != b"T.other"]

    async def are_copied(messages: int) -> bool:
        return sorted(await copies()) == list(range(1, messages + 1))

    settings = settings_for(hub.url, here.rule(entry=entry), connections=connections)
    async with PowerCut.of(leaf, here.target_peer) as power, running(settings) as sidecar:
        await _store_in(here, kept)
        await here.holds(kept)
        await power.sync()
        await _store_in(here, 3)
        await here.holds(kept + 3)
        await until(lambda: not sidecar.runs[0].has_work)  # or unanswered copies would be sent again
        await power.lose()
        for _ in range(others):
            await here.target_peer.store(b"T.other")
        await _store_in(here, bool(others))
        await until(lambda: are_copied(kept + 3 + bool(others)))
        await until(lambda: sidecar.supervisors[0].counters()["shorter_targets"] == 1)
        assert sidecar.supervisors[0].counters()["duplicates"] == 0


async def _store_in(here: Copies, messages: int) -> None:
    for number in range(messages):
        await here.peer.store(b"S.a", b"%d" % number)
