"""A server that loses power: what it had not written to disk by then is lost, although it was acknowledged.

The sidecar is cut off before, and reaches the server when the test says so: at once, or when other messages are under
the sequences that were lost.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable
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


class LostEnd:
    """A stream that loses its end and grows again, while its consumers keep their positions.

    Args:
        server: with a directory of its own.
        peer: the test's connection to it, which comes back.
        stream: the stream's name.
    """

    def __init__(self, server: NativeServer, peer: RawPeer, stream: str) -> None:
        self._server = server
        self._peer = peer
        (self._store,) = server.store_dir.rglob(stream)
        self._messages, self._consumers = self._store / "msgs", self._store / "obs"
        self._synced = server.directory / f"synced {stream}"

    async def sync(self) -> None:
        """Keep the messages that the stream holds now."""
        await asyncio.to_thread(self._server.stop)
        shutil.copytree(self._messages, self._synced)
        await self._back()

    async def lose(self, store: Awaitable[None]) -> None:
        """Lose the later ones, and store others under their sequences before the consumers are back."""
        kept = self._server.directory / "consumers"
        await asyncio.to_thread(self._server.stop)
        shutil.rmtree(self._messages)
        self._synced.rename(self._messages)
        self._consumers.rename(kept)
        await self._back()
        await store
        await asyncio.to_thread(self._server.stop)
        shutil.rmtree(self._consumers, ignore_errors=True)
        kept.rename(self._consumers)
        await self._back()

    async def _back(self) -> None:
        await asyncio.to_thread(self._server.start)
        await connected(self._peer)
