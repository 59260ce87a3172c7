"""The laboratory of a scenario: private servers of one version, and accounts on them."""

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Self

from nats_conformance.catalogue.case import Json
from nats_conformance.native_servers import NativeCluster, NativeServer, ServersError, fetch
from nats_conformance.native_servers.binary import version_of
from nats_conformance.raw_client import Collected, Credentials, RawClient
from nats_conformance.scenarios.account import REPUBLISH, Account


class Laboratory:
    """Starts servers and connections, and ends them all. An async context manager.

    A server that does not start raises SubjectError with its output, unless a method's documentation differs.

    Args:
        binary: the server's binary of the tested version.
        directory: an existing folder; stores and logs are below it until the laboratory is closed.
    """

    def __init__(self, binary: Path, directory: Path) -> None:
        self.binary = binary
        self.directory = Path(tempfile.mkdtemp(prefix="laboratory-", dir=directory))
        self._servers: list[NativeServer | NativeCluster] = []
        self._clients: list[RawClient] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients:
            await client.close()
        for server in self._servers:
            await asyncio.to_thread(server.close)
        await asyncio.to_thread(shutil.rmtree, self.directory, ignore_errors=True)

    async def server(self, config: str = "", *, version: str = "") -> NativeServer:
        """Return a separate running server, optionally of another version."""
        return await (await self.prepared(config, version=version)).started()

    async def prepared(self, config: str = "", *, version: str = "") -> NativeServer:
        """Return a server that is not started yet."""
        binary = await asyncio.to_thread(fetch, version) if version else self.binary
        server = NativeServer(binary=binary, config=config, directory=self._folder("server"))
        self._servers.append(server)
        return server

    async def starts(self, config: str) -> bool:
        """Return whether a server starts with this configuration. It is ended again."""
        server = await self.prepared(config)
        try:
            await server.started()
        except ServersError:
            return False
        await asyncio.to_thread(server.stop)
        return True

    async def restart(
        self, server: NativeServer, *, kill: bool = False, credentials: Credentials | None = None
    ) -> Account:
        """End it as an operator does, or as a crash does, start it again, and be connected."""
        await asyncio.to_thread(server.kill if kill else server.stop)
        return await self.connect(await server.started(), credentials)

    async def replace(self, server: NativeServer, version: str = "") -> Account:
        """End a server, and start another version on the same store: the tested one, or the given one."""
        await asyncio.to_thread(server.stop)
        server.binary = await asyncio.to_thread(fetch, version) if version else self.binary
        server.version = version_of(server.binary)
        return await self.connect(await server.started())

    async def clustered(self) -> tuple[NativeCluster, Account]:
        """Return three running servers with a meta leader, and a connection to the first one."""
        cluster = NativeCluster(binary=self.binary, directory=self._folder("cluster"))
        self._servers.append(cluster)
        return await cluster.started(), await self.connect(cluster.nodes[0])

    async def connect(self, server: NativeServer, credentials: Credentials | None = None) -> Account:
        """Connect to a server."""
        client = await RawClient.connect(server.url, credentials)
        self._clients.append(client)
        return Account(client)

    async def opened(self, config: str = "", *, version: str = "") -> tuple[NativeServer, Account]:
        """Return a separate running server, as from `server`, and a connection to it."""
        server = await self.server(config, version=version)
        return server, await self.connect(server)

    async def account(self, config: str = "") -> Account:
        """Return a connection to a separate running server."""
        _, account = await self.opened(config)
        return account

    async def republishing(self, config: str = "", **stream: Json) -> tuple[Account, Collected]:
        """Return a connection to a separate server, and the messages that stream S republishes there.

        `stream` extends S.
        """
        account = await self.account(config)
        await account.create("S", subjects=["in.*"], republish=REPUBLISH, **stream)
        return account, await account.subscribe("out.>")

    async def with_source(self, *payloads: str, version: str = "") -> tuple[NativeServer, Account]:
        """Return a separate server, as from `opened`, with stream O, which has these messages on `in.a`."""
        server, account = await self.opened(version=version)
        await account.create("O", subjects=["in.*"])
        await account.publish_all("in.a", payloads)
        return server, account

    def _folder(self, stem: str) -> Path:
        return Path(tempfile.mkdtemp(prefix=f"{stem}-", dir=self.directory))
