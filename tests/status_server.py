"""The status page with a state that a test chooses, served over real HTTP from a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from bridge.http.application import guarded, page_routes
from bridge.http.probes import Check, probe_answer
from bridge.settings import Http

__all__ = ["StatusServer", "status_server"]


class StatusServer:
    """What is served, and how often it was asked for.

    Attributes:
        document: the state.
        url: where.
        is_wedged: whether its process does not get on.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.url = ""
        self.is_wedged = False
        self._asked = 0
        self._more = threading.Condition()
        self._runner: web.AppRunner | None = None
        self._loop = asyncio.new_event_loop()
        self._port = 0

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


@contextmanager
def status_server(document: dict[str, Any]) -> Iterator[StatusServer]:
    """Serve until the end of the block."""
    server = StatusServer(document)
    thread = threading.Thread(target=server._loop.run_forever, daemon=True)
    thread.start()
    try:
        server.come_back()
        yield server
    finally:
        server.go_away()
        server._loop.call_soon_threadsafe(server._loop.stop)
        thread.join()
        server._loop.close()
