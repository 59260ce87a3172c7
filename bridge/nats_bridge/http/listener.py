"""The HTTP listener and its paths."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import TYPE_CHECKING

from aiohttp import web

from nats_bridge.errors import ConfigError
from nats_bridge.http.application import guarded, page_routes, probe_answer
from nats_bridge.http.callers import foreign_site
from nats_bridge.http.connections import Connections
from nats_bridge.loopback import is_loopback

if TYPE_CHECKING:
    from nats_bridge.app.sidecar import Sidecar
    from nats_bridge.settings import Http


_CLOSE = 1.0  # seconds for an answer in progress while the listener closes
_KEPT = 75.0  # seconds that a connection is kept open for the next request
_BACKLOG = 32  # connections that wait to be taken, and that are taken at once


class Listener:
    """Listens for HTTP.

    Args:
        sidecar: the sidecar to control; its state is read at the time of a request.
        http: the configuration's section.
    """

    def __init__(self, sidecar: Sidecar, http: Http) -> None:
        self._sidecar = sidecar
        self._state = sidecar.state
        self._http = http
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None

    async def start(self) -> tuple[str, int]:
        """Listen, and return the address in use.

        Raises:
            ConfigError: the address cannot be used.
        """
        assert self._http.address is not None
        wanted, wanted_port = self._http.address
        app = guarded(
            [
                *page_routes(),
                web.get("/livez", self._livez),
                web.get("/startupz", self._startupz),
                web.get("/readyz", self._readyz),
                web.get("/healthz", self._readyz),
                web.get("/status", self._status),
                web.get("/metrics", self._metrics),
                web.post("/-/drain", self._drain),
                web.post("/-/reload", self._reload),
            ],
            self._http,
        )
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=_CLOSE, keepalive_timeout=_KEPT
        )
        await self._runner.setup()
        assert self._runner.server is not None
        try:
            self._server = await asyncio.get_running_loop().create_server(
                Connections(self._runner.server), wanted or None, wanted_port, backlog=_BACKLOG
            )
        except OSError as error:
            await self.stop()
            # asyncio repeats the address in the text. For an unknown name, the number is not an errno.
            number = error.errno or 0
            reason = os.strerror(number) if number in errno.errorcode else error.strerror or str(error)
            raise ConfigError(
                f"http.listen: cannot listen on {wanted}:{wanted_port} ({reason.lower()}):"
                ' choose another port, or "" to turn it off'
            ) from None
        host, port = self._server.sockets[0].getsockname()[:2]
        return str(host), int(port)

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
        if self._runner is not None:
            await self._runner.cleanup()

    # -- answers -----------------------------------------------------------------------------------------------------

    async def _livez(self, request: web.Request) -> web.Response:
        return probe_answer(request, self._state.liveness())

    async def _startupz(self, request: web.Request) -> web.Response:
        return probe_answer(request, self._state.startup())

    async def _readyz(self, request: web.Request) -> web.Response:
        excluded = request.query.getall("exclude", [])
        return probe_answer(request, self._state.readiness(of_connections="connections" not in excluded))

    async def _status(self, request: web.Request) -> web.Response:
        return web.json_response(self._state.status(history=request.query.get("history") != "no"))

    async def _metrics(self, request: web.Request) -> web.Response:
        text, content_type = await self._state.metrics(request.headers.get("Accept", ""))
        return web.Response(body=text, headers={"Content-Type": content_type})

    # -- commands ----------------------------------------------------------------------------------------------------

    async def _drain(self, request: web.Request) -> web.Response:
        self._refuse_changes_from_outside(request)
        self._sidecar.drain("requested over HTTP")
        return web.json_response({"result": "draining"}, status=202)

    async def _reload(self, request: web.Request) -> web.Response:
        self._refuse_changes_from_outside(request)
        facts = await self._sidecar.reload("requested over HTTP")
        return web.json_response(facts.as_dict(), status=409 if facts.result == "refused" else 200)

    def _refuse_changes_from_outside(self, request: web.Request) -> None:
        allowed = self._http.changes_from
        if allowed == "nowhere":
            raise web.HTTPForbidden(text="http.changes_from is 'nowhere': nothing can be changed over HTTP\n")
        if allowed == "loopback" and not is_loopback(request.remote):
            raise web.HTTPForbidden(
                text="changes are accepted only from this machine (in a pod: from its containers); "
                "http.changes_from: anywhere allows others\n"
            )
        if (reason := foreign_site(request.headers)) is not None:
            raise web.HTTPForbidden(text=f"{reason}: refused\n")
