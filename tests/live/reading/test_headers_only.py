"""Rules that want headers only leave the bodies on the server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nats_bridge.consuming import lag
from nats_conformance.native_servers import NativeServer
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Servers
from tests.live.sidecar_process import Scene, differing
from tests.live.sidecars import running, settings_for
from tests.live.until import LIMIT, until

BODY = 100_000
MESSAGES = 50


@pytest.mark.parametrize("durable", [True, False])
async def test_bodies_do_not_travel(
    durable: bool, twin_version: str, native_server: Servers, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with native_server(twin_version, monitor=True) as server:
        republish = {"src": "S.>", "dest": "nativeS.>", "headers_only": True}
        here = await Scene.make(await raw_peer(server.url), "S", republish=republish)
        rule = here.rule(durable=durable, republish={"src": "S.>", "dest": "bridgeS.>", "headers_only": True})
        async with running(settings_for(server.url, rule, dialect="native")) as bridge:
            # For the lag, the server is asked for the first message that waits, body and all.
            await until(lambda: bridge.supervisors[0].metrics.lag_messages() == 0)
            monkeypatch.setattr(lag, "QUIET", LIMIT)
            for number in range(MESSAGES):
                block = b"NATS/1.0\r\nNats-Msg-Size: 7\r\nA: b\r\n\r\n" if number % 3 else b""
                await here.peer.store(b"S.s%d" % (number % 4), b"x" * (BODY + number), block)
            end = await here.end()
            await here.bridged.until_sequence(end)
            sent_to_us = await asyncio.to_thread(_sent_to, server, bridge.runs[0]._source.client.client_id)
        assert differing(here.bridged, here.native) == []
        assert all(not payload for _, _, _, payload in here.bridged.messages)
        assert b"\r\nNats-Msg-Size: 100049\r\n\r\n" in here.bridged.messages[MESSAGES - 1][2]
    # Each body alone is larger than everything that the sidecar got.
    assert 0 < sent_to_us < BODY


def _sent_to(server: NativeServer, client_id: int | None) -> int:
    connections: list[dict[str, Any]] = server.monitored("/connz")["connections"]
    return next(int(connection["out_bytes"]) for connection in connections if connection["cid"] == client_id)
