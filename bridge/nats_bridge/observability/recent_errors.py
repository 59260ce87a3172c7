"""The last warnings and errors of every rule, for the status page: taken from the log, as it is written.

A rule's log lines contain its name (`rule=…`). A log processor keeps the newest of these lines, from any module.
"""

from __future__ import annotations

from collections import deque
from collections.abc import MutableMapping
from datetime import UTC, datetime
from typing import Any

_MOST = 20  # lines per rule
_WORTH = {"warning", "error", "critical", "exception"}
_REASONS = ("reason", "server_says", "meaning", "error")
"""The fields with the reason, in order of preference."""

_lines: dict[str, deque[dict[str, str]]] = {}


def remember(_: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Keep warnings of rules; a structlog processor that changes nothing."""
    rule = event.get("rule")
    if rule is not None and method in _WORTH:
        why = next((str(event[name]) for name in _REASONS if event.get(name)), "")
        line = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "event": str(event.get("event", "")),
            "reason": why,
        }
        _lines.setdefault(str(rule), deque(maxlen=_MOST)).append(line)
    return event


def last_errors(rule: str) -> list[dict[str, str]]:
    """Return the newest warnings and errors of a rule, the oldest first: `at` (RFC 3339), `event`, `reason`."""
    return list(_lines.get(rule, ()))
