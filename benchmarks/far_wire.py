"""A wire with a chosen delay: bytes arrive later, in order, and wait for nothing but time.

`python -m benchmarks.far_wire URL SECONDS` passes bytes between a server and the client of the URL that it
prints, each way in so many seconds, until its standard input ends.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from typing import Self
from urllib.parse import urlsplit


class FarWire:
    """One listening address, far away from a server; as wide as memory, unlike a network.

    Args:
        server_url: where bytes are passed on to.
        one_way: seconds until a byte is there.

    Attributes:
        url: where to connect.
    """

    def __init__(self, server_url: str, one_way: float) -> None:
        self.url = ""
        self.one_way = one_way
        self._server = urlsplit(server_url)
        self._listener: asyncio.Server | None = None
        self._ends: set[_End] = set()
        self._connecting: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Listen on a free port of the loopback."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._accepted, "127.0.0.1", 0)
        self.url = f"{self._server.scheme}://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """Break every connection; what is in flight is lost. New connections work at once."""
        for end in tuple(self._ends):
            end.abort()

    async def close(self) -> None:
        """Cut, and take no more connections."""
        assert self._listener is not None
        self._listener.close()
        for task in self._connecting:
            task.cancel()
        await asyncio.gather(*self._connecting, return_exceptions=True)
        self.cut()
        await self._listener.wait_closed()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _accepted(self) -> _End:
        near = _End(self._ends, self.one_way)
        task = asyncio.get_running_loop().create_task(self._connect(near))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        return near

    async def _connect(self, near: _End) -> None:
        far = _End(self._ends, self.one_way)
        try:
            host, port = str(self._server.hostname), self._server.port or 4222
            await asyncio.get_running_loop().create_connection(lambda: far, host, port)
        except OSError:
            near.abort()
            return
        near.other, far.other = far, near
        near.look()
        far.look()


class _End(asyncio.Protocol):
    """One end of a connection: what it receives is written at the other one, later."""

    def __init__(self, ends: set[_End], one_way: float) -> None:
        self.other: _End | None = None
        self._ends = ends
        self._one_way = one_way
        self._line: deque[tuple[float, bytes]] = deque()  # when it arrives; no bytes for the end
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(1 << 30)
        self._ends.add(self)
        if self._lost:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        self._line.append((asyncio.get_running_loop().time() + self._one_way, data))
        self.look()

    def connection_lost(self, _: Exception | None) -> None:
        self._lost = True
        self._ends.discard(self)
        self._line.append((asyncio.get_running_loop().time() + self._one_way, b""))
        self.look()

    def abort(self) -> None:
        """Break the connection, and drop what is in flight from here."""
        self._lost = True
        self._line.clear()
        if self._transport is not None:
            self._transport.abort()

    def look(self) -> None:
        """Write at the other end what has arrived by now."""
        if self.other is None or (self._timer is not None and not self._timer.cancelled()):
            return
        self._pass_on()

    def _pass_on(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        assert self.other is not None
        transport = self.other._transport
        while self._line and self._line[0][0] <= loop.time():
            _, data = self._line.popleft()
            if transport is not None and not transport.is_closing():
                if data:
                    transport.write(data)
                else:
                    transport.close()
        if self._line:
            self._timer = loop.call_at(self._line[0][0], self._pass_on)


async def _run(server_url: str, one_way: float) -> None:
    async with FarWire(server_url, one_way) as wire:
        print(wire.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1], float(sys.argv[2])))
