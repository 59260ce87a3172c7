"""An ingress transform handed over to the server and taken back: each message stored once, under its new subject."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from nats_bridge.settings import load
from tests.live.commands import Ran
from tests.live.handoff.handoffs import UPGRADES, everything, handoff
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Servers
from tests.live.sidecars import running

RULE: dict[str, Any] = {
    "name": "rule",
    "kind": "subject_transform",
    "stream": "S",
    "subject_transform": {"src": "in.*", "dest": "events.{{partition(3,1)}}.{{wildcard(1)}}"},
}


def configured(url: str, directory: Path, **more: Any) -> Path:
    config = directory / "bridge.yaml"
    connections = {"default": {"servers": [url]}}
    document = {"connections": connections, "http": {"listen": ""}, "rules": [{**RULE, **more}]}
    config.write_text(json.dumps(document), "utf-8")
    return config


async def publish(peer: RawPeer, first: int, last: int) -> None:
    for number in range(first, last + 1):
        answer = await peer.store(b"in.k%d" % (number % 7), b"%d" % number)
        assert answer.get("seq") == number, answer


async def stored(peer: RawPeer) -> list[tuple[bytes, bytes]]:
    return [(message.subject.rpartition(b".")[2], message.payload) for message in await everything(peer, "S")]


def wanted(last: int) -> list[tuple[bytes, bytes]]:
    return [(b"k%d" % (number % 7), b"%d" % number) for number in range(1, last + 1)]


async def applied(peer: RawPeer, ran: Ran) -> None:
    answer = await peer.api("STREAM.UPDATE.S", ran.document)
    assert "error" not in answer, answer


@pytest.mark.parametrize("versions", UPGRADES, ids=lambda pair: "_to_".join(pair))
async def test_an_upgrade_in_place_and_back(
    versions: tuple[str, str], native_server: Servers, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    before, after = versions
    server = native_server(before).start()
    peer = await raw_peer(server.url)
    await peer.create_stream(name="S", subjects=["events.*.*"])
    config = configured(server.url, tmp_path)
    if before == "2.9.10":
        ran = await handoff(config, "rule")
        assert ran.code == 1
        assert "server 2.9.10 ignores subject_transform: upgrade it first" in ran.err
    async with running(load(config)):
        await publish(peer, 1, 10)
    await peer.close()
    await asyncio.to_thread(server.upgrade, after)
    peer = await raw_peer(server.url)
    async with running(load(config)):
        await publish(peer, 11, 15)
    await applied(peer, await handoff(config, "rule"))
    await publish(peer, 16, 20)
    await peer.close()
    await asyncio.to_thread(server.restart)
    peer = await raw_peer(server.url)
    await publish(peer, 21, 25)
    assert "is handed over" in (await handoff(config, "rule")).err
    back = await handoff(config, "rule", "--back")
    assert back.document["subjects"] == ["events.*.*"]
    await applied(peer, back)
    async with running(load(config)):
        await publish(peer, 26, 30)
    assert await stored(peer) == wanted(30)


async def test_what_is_in_the_way(native_server: Servers, raw_peer: OpenPeer, tmp_path: Path) -> None:
    server = native_server("2.15.3").start()
    peer = await raw_peer(server.url)
    await peer.create_stream(name="S", subjects=["events.*.*"])
    await peer.create_stream(name="OTHER", subjects=["in.k1"])
    config = configured(server.url, tmp_path)
    ran = await handoff(config, "rule")
    assert ran.code == 1
    assert "subjects overlap with an existing stream (10065)" in ran.err
    assert "there is nothing to take back" in (await handoff(config, "rule", "--back")).err
