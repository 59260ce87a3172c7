"""Health over HTTP: what an orchestrator asks, and the state as JSON.

`/livez` answers while the event loop runs, whatever the servers do. `/startupz` turns good when the connections are
up; `/readyz` when every rule has its consumer and its starting point, and bad again while a server or a consumer is
away and while draining.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from aiohttp import web

from bridge.errors import ConfigError

if TYPE_CHECKING:
    from bridge.rule_seat import RuleSeat

__all__ = ["Health", "SidecarState"]


class SidecarState(Protocol):
    """What health reports about."""

    @property
    def started(self) -> bool:
        """Whether the connections are up."""

    @property
    def draining(self) -> bool:
        """Whether the sidecar is on its way out."""

    @property
    def seats(self) -> list[RuleSeat]:
        """The rules."""


class Health:
    """The HTTP listener.

    Args:
        state: what to report.
        host: address to listen on.
        port: port to listen on; 0 takes a free one.
    """

    def __init__(self, state: SidecarState, host: str, port: int) -> None:
        self._state = state
        self._host = host
        self._port = port
        self._runner: web.AppRunner | None = None

    async def start(self) -> tuple[str, int]:
        """Listen; the address in use.

        Raises:
            ConfigError: the address cannot be used.
        """
        app = web.Application()
        app.add_routes(
            [
                web.get("/livez", self._livez),
                web.get("/startupz", self._startupz),
                web.get("/readyz", self._readyz),
                web.get("/healthz", self._readyz),
                web.get("/status", self._status),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host or None, self._port)
        try:
            await site.start()
        except OSError as error:
            await self.stop()
            raise ConfigError(
                f"http.listen: cannot listen on {self._host}:{self._port} ({error.strerror or error}):"
                ' choose another port, or "" to turn it off'
            ) from None
        host, port = self._runner.addresses[0][:2]
        return str(host), int(port)

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _livez(self, request: web.Request) -> web.Response:
        return _answer(request, {"event loop": True})

    async def _startupz(self, request: web.Request) -> web.Response:
        return _answer(request, {"connections": self._state.started})

    async def _readyz(self, request: web.Request) -> web.Response:
        checks = {"connections": self._state.started, "not draining": not self._state.draining}
        checks |= {f"rule {seat.rule.name}": seat.ready for seat in self._state.seats}
        return _answer(request, checks)

    async def _status(self, _: web.Request) -> web.Response:
        state = self._state
        return web.json_response(
            {
                "ready": state.started and not state.draining and all(seat.ready for seat in state.seats),
                "rules": [
                    {
                        "name": seat.rule.name,
                        "kind": seat.rule.kind,
                        "state": seat.state,
                        "error": str(seat.error) if seat.error else None,
                        **seat.status(),
                        "counters": seat.counters(),
                    }
                    for seat in state.seats
                ],
            }
        )


def _answer(request: web.Request, checks: dict[str, bool]) -> web.Response:
    good = all(checks.values())
    status = 200 if good else 503
    if "application/json" in request.headers.get("Accept", ""):
        return web.json_response({"ok": good, "checks": checks}, status=status)
    lines = [f"[{'+' if passed else '-'}] {name}" for name, passed in checks.items()]
    if good and "verbose" not in request.query:
        return web.Response(text="ok\n")
    return web.Response(text="\n".join([*lines, "ok" if good else "not ok", ""]), status=status)
