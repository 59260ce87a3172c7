"""Answers of `GET /status`, for tests of those who show it; tests/live/observing/test_status.py keeps them true."""

from __future__ import annotations

import math
from typing import Any

AT = "2026-11-21T12:00:00.000Z"
FAILED_AT = "2026-11-21T11:57:00.000Z"
SAMPLES = 120


def measures(rate: float, *, lag: int | None = 0, lag_seconds: float = 0.0, in_flight: int = 0) -> dict[str, Any]:
    wave = [max(rate * (1 + 0.35 * math.sin(at / 7) + 0.1 * math.sin(at * 1.7)), 0) for at in range(SAMPLES)]
    return {
        "messages_in": int(rate * 3600),
        "messages_out": int(rate * 3500),
        "bytes_in": int(rate * 3600 * 512),
        "bytes_out": int(rate * 3500 * 640),
        "lag_messages": lag,
        "lag_seconds": lag_seconds,
        "seconds_since_progress": 0.2,
        "in_flight": in_flight,
        "rate_in": wave[-1],
        "rate_out": wave[-1] * 0.97,
        "end_to_end_ms": {"p50": 0.8, "p99": 4.2} if rate else None,
        "publish_ms": {"p50": 0.4, "p99": 2.1} if rate else None,
        "history": {
            "interval_s": 5.0,
            "rate_in": wave,
            "rate_out": [value * 0.97 for value in wave],
            "lag_messages": [None if lag is None else lag * at / SAMPLES for at in range(SAMPLES)],
            "end_to_end_ms": [None if at < 20 else 2 + math.cos(at / 5) for at in range(SAMPLES)] if rate else [],
        },
    }


def rule(name: str, rate: float = 1200.0, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "kind": "republish",
        "reads_stream": True,
        "state": "ready",
        "ready": True,
        "condition": "ready",
        "leader": None,
        "waiting_for": None,
        "wedged_s": None,
        "error": None,
        "error_code": None,
        "failures": 0,
        "again_at": None,
        "stream": "ORDERS",
        "position": 4_182_731,
        "counters": {"received": 4_182_731, "republished": 4_180_002, "unmatched": 2_729, "reconnects": 1, "lost": 0},
        "measures": measures(rate),
        "last_errors": [],
        **more,
    }


def waiting(name: str = "settings") -> dict[str, Any]:
    reason = (
        "stream 'KV_SETTINGS' does not exist on connection 'west': the most similar of 12 streams:"
        " KV_SETTING, KV_SESSIONS"
    )
    nothing = {
        "state": "waiting",
        "ready": False,
        "condition": "waiting",
        "waiting_for": reason,
        "measures": measures(0, lag=None) | {"lag_seconds": None},
    }
    return rule(
        name, 0, **nothing | {"kind": "kv_sources", "stream": "KV_SETTINGS_EU", "counters": {}, "position": None}
    )


def failed(name: str = "copy") -> dict[str, Any]:
    error = 'the server refuses a publication (permissions violation for publish to "eu.42")'
    errors = [
        {
            "at": "2026-11-21T11:58:01.120Z",
            "event": "copying.interrupted",
            "reason": "the connection to the target is lost",
        },
        {"at": "2026-11-21T11:59:12.500Z", "event": "rule.failed", "reason": error},
    ]
    return rule(
        name, 0, kind="mirror", state="failed", ready=False, condition="failed", error=error, last_errors=errors
    )


def lagging(name: str = "across") -> dict[str, Any]:
    sources = [
        {"name": "ORDERS", "position": 910_002, "lag_messages": 4, "target_is_full": False},
        {"name": "LEGACY", "position": 12, "lag_messages": 1_204_413, "target_is_full": True},
    ]
    late = {"measures": measures(310, lag=1_204_417, lag_seconds=5_412.0, in_flight=8192), "sources": sources}
    return rule(name, kind="sources", stream="ORDERS_EU", **late)


def on_standby(name: str = "events") -> dict[str, Any]:
    by = {"state": "standby", "condition": "standby", "leader": False, "waiting_for": "another replica leads the rule"}
    return rule(name, 0, **by | {"measures": measures(0)})


def watching(name: str = "mirrors") -> dict[str, Any]:
    """A rule that watches three native copies, one of which is stalled."""
    copy = {
        "mirror": True,
        "entry": "mirror",
        "filters": [],
        "api": "$JS.API",
        "condition": "complete",
        "missing": 0,
        "position": 910_002,
        "source_last": 910_002,
        "stalled_seconds": 0.0,
        "overtaken": 0,
        "reported_lag": 0,
        "reason": None,
        "step_down": None,
    }
    reason = {
        "code": "deliveries_lost",
        "text": "stream ORDERS answers, but its deliveries do not arrive",
        "remedy": "export and import deliver.> as a stream, and $JS.FC.> as a service; check permissions on the path",
    }
    copies = [
        {**copy, "target": "ORDERS_WEST", "source": "ORDERS", "api": "$JS.east.API", "condition": "stalled"}
        | {"missing": 1_204, "position": 908_798, "stalled_seconds": 5_412.0, "reason": reason}
        | {"step_down": "asked of n2"},
        {**copy, "target": "ARCHIVE", "source": "ORDERS", "mirror": False, "entry": "0", "filters": ["orders.eu.>"]}
        | {"condition": "behind", "missing": 3},
        {**copy, "target": "PAYMENTS_WEST", "source": "PAYMENTS"},
    ]
    of_kind = {"kind": "watch", "reads_stream": False, "stream": None, "position": None, "copies": copies}
    counters = {"looks": 3_600, "stalls": 1, "recoveries": 0, "step_downs": 1}
    errors = [{"at": AT, "event": "watch.stalled", "reason": reason["text"]}]
    return rule(name, 0, **of_kind, counters=counters, measures=measures(0, lag=None), last_errors=errors)


def nasty() -> dict[str, Any]:
    """A rule whose words want to be markup, and to move the cursor."""
    said = '<img src=x onerror="document.title=1">\x1b[2J\r\nsecond line </script><b>bold</b>'
    errors = [{"at": AT, "event": "<i>event</i>", "reason": said}]
    return rule(
        "<b>bold</b>", stream="<s>", error=said, last_errors=errors, ready=False, condition="failed", state="failed"
    )


def connection(name: str = "default", *, connected: bool = True) -> dict[str, Any]:
    lost = {"last_error": "the connection was lost", "last_error_at": FAILED_AT, "reconnects": 3}
    failed = {"server": f"{name}.example:4222", "reason": "connection refused", "at": FAILED_AT, "count": 2}
    return {
        "name": name,
        "connected": connected,
        "server": f"{name}.example:4222" if connected else None,
        "server_name": "n1" if connected else None,
        "server_version": "2.15.3" if connected else None,
        "untested_server": None,
        "servers": [f"nats://{name}.example:4222"],
        "reconnects": 0,
        "last_error": None,
        "last_error_at": None,
        "failed_attempts": [] if connected else [failed],
        **({} if connected else lost),
    }


def document(*rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    away = [rule for rule in rules if not rule["ready"]]
    return {
        "name": "orders-bridge",
        "version": "0.1.0",
        "started_at": "2026-11-21T09:00:00.000Z",
        "uptime_s": 10_800.0,
        "at": AT,
        "ready": not away,
        "draining": False,
        "why_not_ready": [
            f"rule {rule['name']}: {rule['error'] or 'waiting: ' + str(rule['waiting_for'])}" for rule in away
        ],
        "event_loop_delay_ms": 1.2,
        "config": {
            "path": "/etc/nats-bridge/config.yaml",
            "hash": "sha256:8c1f0a9be2d4571b",
            "loaded_at": "2026-11-21T09:00:00.000Z",
            "last_reload": None,
        },
        "connections": [connection()],
        "rules": list(rules),
        **more,
    }


def reload(result: str, *changed: str, reason: str | None = None) -> dict[str, Any]:
    return {
        "result": result,
        "at": "2026-11-21T11:30:00.000Z",
        "asked_by": "SIGHUP",
        "reason": reason,
        "changed": list(changed),
    }


def trouble() -> dict[str, Any]:
    """One of everything."""
    found = document(
        rule("monitor", leader=True),
        lagging() | {"leader": True},
        waiting(),
        failed(),
        on_standby(),
        rule("dead-letters", 0.2, kind="advisories", reads_stream=False, stream=None, leader=True),
        connections=[connection(), connection("west", connected=False)],
    )
    found["config"]["last_reload"] = reload("applied", "across")
    return found
