"""The web application around the routes: checks callers, adds common headers, answers probes, and serves the page."""

import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from importlib.resources import files
from typing import Final, TypeAlias

import structlog
from aiohttp import web

from nats_bridge.http.callers import foreign_host
from nats_bridge.http.own_state import Check
from nats_bridge.observability.printable import printable
from nats_bridge.settings import Http

_log = structlog.get_logger("bridge.http")

_Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

_LARGEST_REQUEST = 1 << 14  # bytes; no valid request here has a body

_ALWAYS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:;"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Server": "nats-bridge",
}
"""Headers of every answer. The page loads nothing from other sites, and cannot be embedded by others."""

_PAGE: Final = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}


def guarded(routes: Iterable[web.RouteDef], http: Http) -> web.Application:
    """Return an application of these routes, which answers only to its own names and lists its paths."""
    routes = list(routes)
    listed = "".join(f"{route.method} {route.path}\n" for route in routes if not route.path.startswith("/page."))

    @web.middleware
    async def guard(request: web.Request, handler: _Handler) -> web.StreamResponse:
        if (reason := foreign_host(request.headers.get("Host", ""), http.hosts)) is not None:
            return web.Response(text=f"{reason}\n", status=421)
        try:
            return await handler(request)
        except web.HTTPNotFound:
            return web.Response(text=f"not found; available:\n{listed}", status=404)
        except web.HTTPMethodNotAllowed as error:
            allowed = ", ".join(sorted(error.allowed_methods))
            return web.Response(
                text=f"{error.method} is not allowed on this path; use {allowed}\n",
                status=405,
                headers={"Allow": allowed},
            )

        except web.HTTPException:
            raise
        except Exception as error:
            _log.error("http.failed", path=request.path, reason=str(error), exc_info=error)
            return web.Response(text="internal error; see the log\n", status=500)

    async def on_prepare(_: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(_ALWAYS)

    app = web.Application(middlewares=[guard], client_max_size=_LARGEST_REQUEST)
    app.add_routes(routes)
    app.on_response_prepare.append(on_prepare)
    return app


def page_routes() -> list[web.RouteDef]:
    """Return the page and its files."""
    return [web.get(path, _static(name, kind)) for path, (name, kind) in _PAGE.items()]


def _static(name: str, kind: str) -> _Handler:
    content = (files("nats_bridge.http") / "page" / name).read_bytes()

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=content, content_type=kind, charset="utf-8")

    return answer


def probe_answer(request: web.Request, checks: Sequence[Check]) -> web.Response:
    """200 when all checks are good, 503 otherwise.

    As text: `ok`, or one line per check if one fails or `?verbose` is given, like the API server of Kubernetes. As
    JSON, if the caller accepts it: `{"ok", "checks": {name: good}, "reasons": {name: reason}}`.
    """
    good = all(check.is_good for check in checks)
    status = 200 if good else 503
    if "application/json" in request.headers.get("Accept", ""):
        reported = {
            "ok": good,
            "checks": {check.name: check.is_good for check in checks},
            "reasons": {check.name: check.reason for check in checks if check.reason is not None},
        }
        return web.Response(text=json.dumps(reported), content_type="application/json", status=status)
    if good and "verbose" not in request.query:
        return web.Response(text="ok\n")
    lines = [_line(check) for check in checks]
    return web.Response(text="\n".join([*lines, "ok" if good else "not ok", ""]), status=status)


def _line(check: Check) -> str:
    said = check.note if check.reason is None else check.reason
    return f"[{'+' if check.is_good else '-'}] {check.name}{': ' if said else ''}{printable(said)}"
