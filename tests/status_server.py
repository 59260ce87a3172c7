"""The status page with a state that a test chooses, served over real HTTP from a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from nats_bridge.http.application import guarded, page_routes, probe_answer
from nats_bridge.http.own_state import Check
from nats_bridge.settings import Http
from nats_conformance.native_servers import free_port


class StatusServer:
    """What is served, and how often it was asked for.

    Attributes:
        document: the state.
        url: where.
        is_wedged: whether its process is wedged.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.url = ""
        self.is_wedged = False
        self._asked = 0
        self._more = threading.Condition()
        self._runner: web.AppRunner | None = None
        self._port = free_port()  # not of those that outgoing connections get while it is away
        self._loop: asyncio.AbstractEventLoop
        self._ending: asyncio.Event

    def asked(self, times: int, limit: float) -> bool:
        """Wait until the state was asked for so many more times."""
        with self._more:
            until = self._asked + times
            return self._more.wait_for(lambda: self._asked >= until, limit)

    def go_away(self) -> None:
        """Stop listening."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()

    def come_back(self) -> None:
        """Listen again at the same address."""
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()

    async def _status(self, _: web.Request) -> web.Response:
        with self._more:
            self._asked += 1
            self._more.notify_all()
        return web.json_response(self.document)

    async def _livez(self, request: web.Request) -> web.Response:
        wedged = [Check("rule monitor", "wedged")]
        return probe_answer(request, wedged if self.is_wedged else [Check("event loop")])

    async def _start(self) -> None:
        app = guarded([*page_routes(), web.get("/status", self._status), web.get("/livez", self._livez)], Http())
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True).start()
        self._port = int(self._runner.addresses[0][1])
        self.url = f"http://127.0.0.1:{self._port}"

    async def _stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _serve(self, started: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._ending = asyncio.Event()
        try:
            await self._start()
        finally:
            started.set()
        await self._ending.wait()
        await self._stop()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._ending.set)


@contextmanager
def status_server(document: dict[str, Any]) -> Iterator[StatusServer]:
    """Serve until the end of the block."""
    server = StatusServer(document)
    started = threading.Event()
    # asyncio.run ends what a connection that came at the last moment left behind.
    thread = threading.Thread(target=lambda: asyncio.run(server._serve(started)))
    thread.start()
    started.wait()
    try:
        yield server
    finally:
        server._end()
        thread.join()
