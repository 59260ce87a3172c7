"""The last problems of every rule, for the status page: taken from the log, as it is written.

A rule's log lines contain its name (`rule=…`). A log processor keeps the newest of its warnings and errors, from any
module. It leaves out remarks, because a healthy rule can have them.
"""

from collections import deque
from collections.abc import MutableMapping
from datetime import UTC, datetime
from typing import Any, Final

REMARKS: Final = frozenset(
    {
        "consumer.reconfigured",
        "copying.begins_at_time",
        "copying.headers_will_be_lost",
        "copying.renamed_headers",
        "rule.begins_new",
        "rule.copied_again",
        "rule.last_sequence_inexact",
        "rule.limits_changed",
        "rule.own_advisory",
        "rule.position_can_jump",
        "rule.second_transform",
        "rule.side_effects",
    }
)
"""Warnings that are not problems: the effect of a configuration, or where a rule begins."""

_MOST = 20  # lines per rule
_WORTH = {"warning", "error", "critical", "exception"}
_REASONS = ("reason", "server_says", "meaning", "error")
"""The fields with the reason, in order of preference."""

_lines: dict[str, deque[dict[str, str]]] = {}


def remember(_: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Keep problems of rules; a structlog processor that changes nothing."""
    rule = event.get("rule")
    if rule is not None and method in _WORTH and event.get("event") not in REMARKS:
        why = next((str(event[name]) for name in _REASONS if event.get(name)), "")
        line = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "event": str(event.get("event", "")),
            "reason": why,
        }
        _lines.setdefault(str(rule), deque(maxlen=_MOST)).append(line)
    return event


def last_errors(rule: str) -> list[dict[str, str]]:
    """Return the newest problems of a rule, the oldest first: `at` (RFC 3339), `event`, `reason`."""
    return list(_lines.get(rule, ()))
