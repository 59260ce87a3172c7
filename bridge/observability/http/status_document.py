"""`GET /status`: the present state of a sidecar, as plain data.

Facts about time are RFC 3339 in UTC, or seconds where the name says `_s` or `seconds`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Protocol

from nats_bridge.bridge.kinds.registry import kind_of
from nats_bridge.bridge.observability.http.checks import Check
from nats_bridge.bridge.observability.recent_errors import last_errors

if TYPE_CHECKING:
    from pathlib import Path

    from nats_bridge.bridge.app.reload.coordinator import Reloader
    from nats_bridge.bridge.client.connection import Link
    from nats_bridge.bridge.rules.supervisor import RuleSeat
    from nats_bridge.bridge.settings import Settings

__all__ = [
    "Process",
    "SidecarState",
    "as_time",
    "config_document",
    "draining_check",
    "liveness",
    "readiness",
    "reasons",
    "startup",
    "status_document",
]

_NOT_DRAINING = "not draining"
_WORDS = {"stopped": "stopped", "draining": "finishing what is in flight", "starting": "starting"}


class SidecarState(Protocol):
    """What the document describes."""

    @property
    def settings(self) -> Settings:
        """The configuration."""

    @property
    def seats(self) -> Sequence[RuleSeat]:
        """The rules."""

    @property
    def links(self) -> Mapping[str, Link]:
        """The open connections by name."""

    @property
    def config_path(self) -> Path | None:
        """The configuration file."""

    @property
    def reloader(self) -> Reloader:
        """What reads that file again."""

    @property
    def started(self) -> bool:
        """Whether the connections were up once."""

    @property
    def draining(self) -> bool:
        """Whether it is on its way out."""


@dataclass(frozen=True, slots=True)
class Process:
    """The state of the process itself.

    Attributes:
        began: when it began.
        uptime: seconds since then, by a monotonic clock.
        loop_delay: seconds for which something blocked the event loop, the longest of the last minute.
        wedged: the rules that are stalled by a fault of their own, and since how many seconds.
    """

    began: datetime
    uptime: float
    loop_delay: float
    wedged: Mapping[str, float]


def startup(sidecar: SidecarState) -> list[Check]:
    """The checks of `/startupz`: whether the connections were up once."""
    return [Check("connections", None if sidecar.started else "not all were up yet")]


def liveness(wedged: Mapping[str, float]) -> list[Check]:
    """The checks of `/livez`. Any answer shows that the event loop runs.

    Args:
        wedged: the rules that are stalled by a fault of their own, and since how many seconds.
    """
    stuck = (_wedged_check(name, wedged) for name in wedged)
    return [Check("event loop"), *(check for check in stuck if check is not None)]


def _wedged_check(name: str, wedged: Mapping[str, float]) -> Check | None:
    seconds = wedged.get(name)
    if seconds is None:
        return None
    return Check(
        f"rule {name}", f"has messages in flight, waits for nothing, and has made no progress for {seconds:.0f} s"
    )


def readiness(sidecar: SidecarState, wedged: Mapping[str, float]) -> list[Check]:
    """The checks of `/readyz`: connections, draining, and every rule."""
    return [
        *startup(sidecar),
        draining_check(draining=sidecar.draining),
        *(_wedged_check(seat.rule.name, wedged) or _rule_check(seat) for seat in sidecar.seats),
    ]


def draining_check(*, draining: bool) -> Check:
    """Whether it is not draining."""
    return Check(_NOT_DRAINING, "it finishes what is in flight and ends" if draining else None)


def _rule_check(seat: RuleSeat) -> Check:
    name = f"rule {seat.rule.name}"
    if seat.ready:
        return Check(name, note="stands by, another replica leads it" if seat.state == "standby" else "")
    if seat.error is not None:
        return Check(name, f"failed: {_without_name(seat, str(seat.error))}")
    if (waiting := waiting_for(seat)) is not None:
        return Check(name, f"waiting: {waiting}")
    return Check(name, _WORDS.get(seat.state, f"{seat.state}, but not running"))


def waiting_for(seat: RuleSeat) -> str | None:
    """What a rule waits for, in words: its seat (a stream, the lead) or its run (anything else)."""
    if seat.waiting_for is not None:
        return _without_name(seat, seat.waiting_for)
    at_work = seat.run is not None and seat.state in ("ready", "waiting")
    return seat.run.waiting_for if seat.run is not None and at_work else None


def _without_name(seat: RuleSeat, text: str) -> str:
    """Return a text without the rule's name at its start."""
    return text.removeprefix(f"rule '{seat.rule.name}': ")


def status_document(sidecar: SidecarState, process: Process, *, history: bool = True) -> dict[str, Any]:
    """The whole state; without the rules' recent history if that is not wanted."""
    now = datetime.now(UTC)
    checks = readiness(sidecar, process.wedged)
    return {
        "name": sidecar.settings.name,
        "version": version("nats-bridge"),
        "started_at": as_time(process.began),
        "uptime_s": round(process.uptime, 3),
        "at": as_time(now),
        "ready": all(check.is_good for check in checks),
        "draining": sidecar.draining,
        "why_not_ready": reasons(checks),
        "event_loop_delay_ms": round(process.loop_delay * 1000, 1),
        "config": config_document(sidecar.config_path, sidecar.reloader),
        "connections": [_connection(link) for link in sidecar.links.values()],
        "rules": [_rule(seat, process.wedged, history=history) for seat in sidecar.seats],
    }


def reasons(checks: Sequence[Check]) -> list[str]:
    """What is not as it should be, in words."""
    return [_why(check) for check in checks if not check.is_good]


def _why(check: Check) -> str:
    return f"{'draining' if check.name == _NOT_DRAINING else check.name}: {check.reason}"


def config_document(path: Path | None, reloader: Reloader) -> dict[str, Any]:
    """The configuration that is in force, and how the last reload went."""
    return {
        "path": str(path) if path is not None else None,
        "hash": reloader.file_hash,
        "loaded_at": as_time(reloader.loaded_at),
        "last_reload": reloader.last.as_dict() if reloader.last is not None else None,
    }


def _connection(link: Link) -> dict[str, Any]:
    connected = link.client.is_connected
    at, error = link.last_error or (None, None)
    return {
        "name": link.name,
        "connected": connected,
        "server_version": link.server_version if connected else None,
        "servers": list(link.servers),
        "reconnects": link.reconnects,
        "last_error": error,
        "last_error_at": as_time(at) if at is not None else None,
    }


def _rule(seat: RuleSeat, wedged: Mapping[str, float], *, history: bool) -> dict[str, Any]:
    return {
        "name": seat.rule.name,
        "kind": seat.rule.kind,
        "reads_stream": kind_of(seat.rule).reads_stream,
        "state": seat.state,
        "ready": seat.ready and seat.rule.name not in wedged,
        "condition": _condition(seat, wedged),
        "leader": seat.leader,
        "waiting_for": waiting_for(seat),
        "wedged_s": wedged.get(seat.rule.name),
        "error": _without_name(seat, str(seat.error)) if seat.error is not None else None,
        **seat.status(),
        "counters": seat.counters(),
        "measures": seat.measures.as_dict(history=history),
        "last_errors": last_errors(seat.rule.name),
    }


def _condition(seat: RuleSeat, wedged: Mapping[str, float]) -> str:
    """The rule's state as one word for people: `ready` only if it runs at this moment."""
    if seat.rule.name in wedged:
        return "wedged"
    return "waiting" if seat.state == "ready" and not seat.ready else seat.state


def as_time(at: datetime) -> str:
    """RFC 3339, in UTC."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
