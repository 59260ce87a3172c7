"""One running server per version, started when first asked for and shared by all who ask."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from nats_conformance.native_servers import NativeServer, fetch
from nats_conformance.native_servers.processes import Report

Servers: TypeAlias = Callable[..., NativeServer]
"""The fixture `native_server`."""

Name: TypeAlias = Callable[[str], str]
"""The fixture `unique_name`."""


class SharedServers:
    """Lazily started servers by version; ``close`` ends them all.

    Users of a shared server keep to streams and subjects of their own. ``directory`` holds stores and logs.
    """

    def __init__(self, directory: Path, report: Report = lambda _: None) -> None:
        self._directory = directory
        self._report = report
        self._servers: dict[str, NativeServer] = {}
        self._lock = threading.Lock()

    def __getitem__(self, version: str) -> NativeServer:
        """The running server of ``version``, full or minor; raises ServersError when none can be had."""
        with self._lock:
            if version not in self._servers:
                binary = fetch(version, report=self._report)
                server = NativeServer(binary=binary, directory=self._directory / version)
                self._servers[version] = server.start()
            return self._servers[version]

    async def url(self, version: str) -> str:
        """The address of the running server of ``version``; the event loop runs on while it starts."""
        server = await asyncio.to_thread(self.__getitem__, version)
        return server.url

    def close(self) -> None:
        """End every server started here."""
        with self._lock:
            for server in self._servers.values():
                server.close()
            self._servers.clear()
