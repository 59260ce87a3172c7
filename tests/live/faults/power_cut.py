"""A server that loses power: what it had not written to disk by then is lost, although it was acknowledged.

The sidecar is cut off before, and reaches the server when the test says so: at once, or when other messages are under
the sequences that were lost.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from nats_conformance.native_servers import NativeServer
from tests.live.cut_wire import CutWire, cut_wire
from tests.live.raw_messages import RawPeer, connected


class PowerCut:
    """A server whose store is set back.

    Args:
        server: with a directory of its own.
        wire: by which the sidecar reaches it.
        peer: the test's connection to it, which comes back.

    Attributes:
        url: the sidecar's address of the server.
    """

    def __init__(self, server: NativeServer, wire: CutWire, peer: RawPeer) -> None:
        self.url = wire.url
        self._server = server
        self._wire = wire
        self._peer = peer
        self._synced = server.directory / "synced"

    @classmethod
    @asynccontextmanager
    async def of(cls, server: NativeServer, peer: RawPeer) -> AsyncIterator[Self]:
        """One for a running server."""
        async with cut_wire(server.url) as wire:
            yield cls(server, wire, peer)

    async def sync(self) -> None:
        """Keep what the store holds now: that is on the disk."""
        await asyncio.to_thread(self._server.stop)
        shutil.copytree(self._server.store_dir, self._synced)
        await asyncio.to_thread(self._server.start)
        await connected(self._peer)

    async def lose(self) -> None:
        """Lose what came later, while the sidecar cannot reach the server."""
        self._wire.hold_back()
        await asyncio.to_thread(self._server.kill)
        shutil.rmtree(self._server.store_dir)
        self._synced.rename(self._server.store_dir)
        await asyncio.to_thread(self._server.start)
        await connected(self._peer)

    def back(self) -> None:
        """Let the sidecar reach the server again."""
        self._wire.let_through()
