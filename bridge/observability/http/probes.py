"""What an orchestrator is answered: named checks, each good or with the reason why not."""

from __future__ import annotations

import json
from collections.abc import Sequence

from aiohttp import web

from nats_bridge.bridge.observability.http.own_state import Check
from nats_bridge.bridge.observability.printable import printable

__all__ = ["probe_answer"]


def probe_answer(request: web.Request, checks: Sequence[Check]) -> web.Response:
    """200 when all checks are good, 503 otherwise.

    Text: one line per check when something is wrong or `?verbose` asks for it, the way Kubernetes' own API server does
    it; else `ok`. JSON where the caller accepts it: `{"ok", "checks": {name: good}, "reasons": {name: reason}}`.
    """
    good = all(check.is_good for check in checks)
    status = 200 if good else 503
    if "application/json" in request.headers.get("Accept", ""):
        told = {
            "ok": good,
            "checks": {check.name: check.is_good for check in checks},
            "reasons": {check.name: check.reason for check in checks if check.reason is not None},
        }
        return web.Response(text=json.dumps(told), content_type="application/json", status=status)
    if good and "verbose" not in request.query:
        return web.Response(text="ok\n")
    lines = [_line(check) for check in checks]
    return web.Response(text="\n".join([*lines, "ok" if good else "not ok", ""]), status=status)


def _line(check: Check) -> str:
    said = check.note if check.reason is None else check.reason
    return f"[{'+' if check.is_good else '-'}] {check.name}{': ' if said else ''}{printable(said)}"
