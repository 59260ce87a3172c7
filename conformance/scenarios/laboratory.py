"""What a scenario works with: servers of one version that nobody else uses, and connections to them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Self

from conformance.raw_client import Credentials, RawClient
from conformance.servers import NativeCluster, NativeServer

__all__ = ["Laboratory"]


class Laboratory:
    """Starts servers and connections, and ends them all. An async context manager."""

    def __init__(self, binary: Path, directory: Path) -> None:
        self.binary = binary
        self.directory = directory
        self._servers: list[NativeServer | NativeCluster] = []
        self._clients: list[RawClient] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients:
            await client.close()
        for server in self._servers:
            await asyncio.to_thread(server.close)

    async def server(self, config: str = "") -> NativeServer:
        """A running server of its own."""
        server = NativeServer(binary=self.binary, config=config)
        self._servers.append(server)
        return await asyncio.to_thread(server.start)

    async def connect(self, server: NativeServer, credentials: Credentials | None = None) -> RawClient:
        """A connection to it."""
        client = await RawClient.connect(server.url, credentials)
        self._clients.append(client)
        return client
