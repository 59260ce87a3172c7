"""TCP proxies between the sidecar and its servers: they can cut, hold or slow connections."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

_CHUNK = 65536
_SLOW_CHUNK = 4096
_SLOW_PAUSE = 0.05  # seconds between two slow chunks: about 80 kB a second


class Wire:
    """One listening address that passes bytes on to a server.

    Args:
        server_url: where to; the server may be away.
    """

    def __init__(self, server_url: str) -> None:
        self._server = urlsplit(server_url)
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._passing: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._refusing = False
        self._slow = False
        self.url = ""

    async def open(self) -> None:
        """Listen on a free port of the loopback."""
        self._listener = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.url = f"nats://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """Break every connection, losing what is in flight, and accept no new one until `restore`."""
        self._refusing = True
        self.reset()

    def reset(self) -> None:
        """Break every connection; new ones work at once."""
        for pair in self._pairs:
            for writer in pair:
                writer.transport.abort()

    def hold(self) -> None:
        """Pass nothing on, either way, and break nothing, as a network that swallows packets."""
        self._flowing.clear()

    def slow(self) -> None:
        """Pass bytes on slowly."""
        self._slow = True

    def restore(self) -> None:
        """End every fault."""
        self._refusing = self._slow = False
        self._flowing.set()

    async def close(self) -> None:
        """Cut, and listen no more."""
        assert self._listener is not None
        self._listener.close()
        self.restore()
        self.reset()
        await asyncio.gather(*self._passing)

    async def _accepted(self, client_reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        assert self._server.hostname is not None
        assert self._server.port is not None
        await self._flowing.wait()
        if self._refusing:
            client.transport.abort()
            return
        try:
            server_reader, server = await asyncio.open_connection(self._server.hostname, self._server.port)
        except OSError:
            client.transport.abort()
            return
        pair = (client, server)
        self._pairs.add(pair)
        tasks = [
            asyncio.create_task(self._pass_on(reader, writer))
            for reader, writer in ((client_reader, server), (server_reader, client))
        ]
        for task in tasks:
            self._passing.add(task)
            task.add_done_callback(self._passing.discard)
        await asyncio.wait(tasks)
        self._pairs.discard(pair)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(_SLOW_CHUNK if self._slow else _CHUNK):
                await self._flowing.wait()
                if self._slow:
                    await asyncio.sleep(_SLOW_PAUSE)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass  # cut
        finally:
            writer.close()
