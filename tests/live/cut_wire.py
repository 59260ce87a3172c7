"""A wire between a client and a real server that a test can cut at any moment; the server never notices before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from nats_bridge.client.tasks import end_tasks

_LONGEST_WORDS = 100  # bytes
_TURNS = 4  # of the event loop, from accepting a connection to the first step of its task


class CutWire:
    """Passes bytes on, both ways, until it is cut; new connections work at once, save while they are held back.

    Attributes:
        held: what came, from both ends, while it was silent.
    """

    def __init__(self, server_url: str) -> None:
        self._server = urlsplit(server_url)
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._accepting: set[asyncio.Task[Any]] = set()
        self._passing: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None
        self._through = asyncio.Event()
        self._through.set()
        self._passable = asyncio.Event()
        self._passable.set()
        self._last_words = b""
        self.held = b""
        self.url = ""
        self.port = 0
        self.connections = 0

    async def open(self) -> None:
        """Listen on a free port of the loopback."""
        self._listener = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]
        self.url = f"nats://127.0.0.1:{self.port}"

    def hold_back(self) -> None:
        """Accept new connections and leave them without an answer until `let_through`."""
        self._through.clear()

    def let_through(self) -> None:
        """Connect whatever was held back, and what comes from now on."""
        self._through.set()

    def fall_silent(self) -> None:
        """Keep every connection, and hold back all bytes, until `speak_again`."""
        self._passable.clear()

    @property
    def is_silent(self) -> bool:
        """Whether nothing is passed on at this moment."""
        return not self._passable.is_set()

    @property
    def passes(self) -> bool:
        """Whether a connection is open, at one of its ends at least."""
        return bool(self._passing)

    def fall_silent_after(self, words: bytes) -> None:
        """Fall silent behind the next read that holds the end of these words, of either end."""
        self._last_words = words

    def speak_again(self) -> None:
        """Pass on the bytes held back, and all later ones."""
        self._passable.set()

    def cut(self) -> None:
        """Break every connection; what is in flight is lost."""
        for pair in self._pairs:
            for writer in pair:
                writer.transport.abort()

    def hang_up(self) -> None:
        """Break every connection to clients; what is held back of theirs still goes to the server, once it may."""
        for client, _ in self._pairs:
            client.transport.abort()

    async def close(self) -> None:
        """Cut, and take no more connections."""
        assert self._listener is not None
        self._listener.close()
        for _ in range(_TURNS):  # in which a connection that the loop has just accepted gets its task
            await asyncio.sleep(0)
        # What is held back, or in flight to the server, would be left to the garbage collector.
        await end_tasks(*self._accepting)
        self.speak_again()
        self.cut()
        await asyncio.gather(*self._passing)
        await self._listener.wait_closed()

    async def _accepted(self, client_reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        assert self._server.hostname is not None
        assert self._server.port is not None
        accepting = asyncio.current_task()
        assert accepting is not None
        if self._listener is None or not self._listener.is_serving():
            client.transport.abort()
            return
        self._accepting.add(accepting)
        try:
            await self._through.wait()
            server_reader, server = await asyncio.open_connection(self._server.hostname, self._server.port)
        except (OSError, asyncio.CancelledError):
            client.transport.abort()
            return
        finally:
            self._accepting.discard(accepting)
        self.connections += 1
        self._pairs.add((client, server))
        for reader, writer in ((client_reader, server), (server_reader, client)):
            task = asyncio.create_task(self._pass_on(reader, writer))
            self._passing.add(task)
            task.add_done_callback(self._passing.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        before = b""  # the end of the last read, which may hold the beginning of the words
        try:
            while data := await reader.read(65536):
                if self.is_silent:
                    self.held += data
                    await self._passable.wait()
                writer.write(data)
                if self._last_words and self._last_words in before + data:
                    self._last_words = b""
                    self.fall_silent()
                before = (before + data[-_LONGEST_WORDS:])[-_LONGEST_WORDS:]
                await writer.drain()
        except OSError:
            pass  # cut
        finally:
            writer.close()


@asynccontextmanager
async def cut_wire(server_url: str) -> AsyncIterator[CutWire]:
    """A wire to a server, closed at the end."""
    wire = CutWire(server_url)
    await wire.open()
    try:
        yield wire
    finally:
        await wire.close()
