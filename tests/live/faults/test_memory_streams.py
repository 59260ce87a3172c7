"""A stream begins again under its name and creation time, while its server is away for less than five seconds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import nats.errors
import pytest

from nats_bridge.consuming import stream_range
from nats_bridge.kinds.copying.position import entry_streams
from nats_conformance.native_servers import NativeCluster, NativeServer
from tests.live.copies import Copies
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.sidecar_process import Seen
from tests.live.sidecars import running, settings_for
from tests.live.stored_messages import stored_messages
from tests.live.tiers import by_turns
from tests.live.until import until

VERSIONS = ["2.9.10", pytest.param("2.10.27", marks=pytest.mark.exhaustive), "2.15.3"]


@asynccontextmanager
async def _away_from_home(
    version: str, raw_peer: OpenPeer, **config: Any
) -> AsyncIterator[tuple[NativeCluster, NativeServer, NativeServer, RawPeer]]:
    """A cluster, the only server of its stream `S`, another one, and a connection to that."""
    async with NativeCluster(version, advertise=False) as cluster:
        peer = await raw_peer(cluster.nodes[0].url)
        made = await peer.create_stream(**{"name": "S", "subjects": ["S.>"], "num_replicas": 1} | config)
        home = next(node for node in cluster.nodes if node.name == made["cluster"]["leader"])
        other = next(node for node in cluster.nodes if node is not home)
        yield cluster, home, other, await raw_peer(other.url)


async def _store(peer: RawPeer, first: int, last: int) -> None:
    for number in range(first, last + 1):
        answer = None
        while not answer:  # this server does not know yet that the other one listens again
            answer = await peer.request_raw(b"S.x", b"%d" % number)
        assert "error" not in json.loads(answer)


async def _is_empty(peer: RawPeer) -> bool:
    try:
        answer = await peer.client.request("$JS.API.STREAM.INFO.S", b"", timeout=1)  # lost where there is no leader
    except nats.errors.Error:
        return False
    info = json.loads(answer.data)
    return "state" in info and bool(info["cluster"].get("leader")) and info["state"]["last_seq"] == 0


@by_turns("version, more", VERSIONS, [{}, {"durable": False}, {"delivery": "at_least_once"}])
async def test_a_republished_stream_in_memory(version: str, more: dict[str, Any], raw_peer: OpenPeer) -> None:
    async with _away_from_home(version, raw_peer, storage="memory") as (_, home, other, peer):
        seen = await Seen.of(peer, "out.>")
        rule = {"name": "rule", "stream": "S", "republish": {"src": "S.>", "dest": "out.>"}, **more}
        async with running(settings_for(other.url, rule)):
            await _store(peer, 1, 20)
            await seen.count(20)
            await asyncio.to_thread(home.restart)
            await until(lambda: _is_empty(peer))
            await _store(peer, 21, 45)
            await seen.count(45)
    assert [int(message[3]) for message in seen.messages] == list(range(1, 46))


# 2.10.27 may keep the last message of before as the first one of the stream, now and then.
@pytest.mark.parametrize("version", ["2.9.10", "2.15.3"])
async def test_a_source_of_copies_in_memory(version: str, raw_peer: OpenPeer) -> None:
    async with _away_from_home(version, raw_peer, storage="memory") as (_, home, other, peer):
        await peer.create_stream(name="TS", subjects=["TS.>"], num_replicas=3)
        here = Copies(peer, peer, "S")
        async with running(settings_for(other.url, here.rule())) as bridge:
            await _store(peer, 1, 20)
            await here.holds(20)
            await asyncio.to_thread(home.restart)
            await until(lambda: _is_empty(peer))
            await _store(peer, 21, 45)
            await here.holds(45)
            assert bridge.supervisors[0].error is None
        held = [message.payload for message in await stored_messages(peer, "S", 25)]
        assert [message.payload for message in await here.stored()][:45] == [*map(b"%d".__mod__, range(1, 21)), *held]


@by_turns("version, new", ["2.9.10", "2.15.3"], [30, 97, 200])
async def test_a_source_in_memory_that_no_sidecar_sees(
    new: int, version: str, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All copies that are compared, the newest eight, are of messages of before."""
    monkeypatch.setattr(stream_range, "FIRST_PIECE", 8)
    monkeypatch.setattr(entry_streams, "TOGETHER_NS", 0)
    async with _away_from_home(version, raw_peer, storage="memory") as (_, home, other, peer):
        await peer.create_stream(name="TS", subjects=["TS.>"], num_replicas=3)
        here = Copies(peer, peer, "S")
        settings = settings_for(other.url, here.rule())
        async with running(settings):
            await _store(peer, 1, 100)
            await here.holds(100)
        await asyncio.to_thread(home.restart)
        await until(lambda: _is_empty(peer))
        await _store(peer, 101, 100 + new)
        async with running(settings):
            await here.holds(100 + new)
            assert await here.source_sequences() == [*range(1, 101), *range(1, new + 1)]


async def test_a_stream_that_loses_its_only_server(raw_peer: OpenPeer) -> None:
    """2.10 places it on another one, empty; 2.9 and 2.15 refuse."""
    async with _away_from_home("2.10.27", raw_peer) as (_, home, other, peer):
        seen = await Seen.of(peer, "out.>")
        rule = {"name": "rule", "stream": "S", "republish": {"src": "S.>", "dest": "out.>"}}
        async with running(settings_for(other.url, rule)):
            await _store(peer, 1, 20)
            await seen.count(20)
            answer = await peer.api("STREAM.PEER.REMOVE.S", {"peer": home.name})
            assert answer.get("success"), answer
            await until(lambda: _is_empty(peer))
            await _store(peer, 21, 45)
            await seen.count(45)
    assert [int(message[3]) for message in seen.messages] == list(range(1, 46))
