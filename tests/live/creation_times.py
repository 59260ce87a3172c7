"""Servers before 2.14 that report another creation time of a stream, which is the same stream."""

from __future__ import annotations

from nats_conformance.native_servers import NativeServer
from tests.live.raw_messages import OpenPeer, RawPeer

CHANGE_IT = ["2.9.10", "2.10.27", "2.12.15"]
"""The versions."""


async def _created(peer: RawPeer, stream: str) -> str:
    return str((await peer.api(f"STREAM.INFO.{stream}"))["created"])


async def change_creation_time(server: NativeServer, open_peer: OpenPeer, stream: str) -> RawPeer:
    """Restart, update, restart, as an administrator does over the weeks; return a connection."""
    server.restart()
    peer = await open_peer(server.url)
    before = await _created(peer, stream)
    config = (await peer.api(f"STREAM.INFO.{stream}"))["config"]
    assert "error" not in await peer.api(f"STREAM.UPDATE.{stream}", config | {"max_msgs": 1_000_000})
    await peer.close()
    server.restart()
    peer = await open_peer(server.url)
    assert await _created(peer, stream) != before
    return peer
