"""Computes a sidecar's state: the checks of probes, and `GET /status` as plain data.

Times are RFC 3339 in UTC, or seconds if the name contains `_s` or `seconds`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from nats_bridge.http.progress_watch import ProgressWatch
from nats_bridge.observability.recent_errors import last_errors
from nats_bridge.rule_kinds import kind_of

if TYPE_CHECKING:
    from nats_bridge.app.sidecar import Sidecar
    from nats_bridge.client.connection import Connection
    from nats_bridge.rules.supervisor import RuleSupervisor


_WORDS = {"stopped": "stopped", "draining": "finishing messages in flight", "starting": "starting"}


@dataclass(frozen=True, slots=True)
class Check:
    """One check of a probe.

    Attributes:
        reason: the reason for a failure; None if it passes.
        note: a remark on it.
    """

    name: str
    reason: str | None = None
    note: str = ""

    @property
    def is_good(self) -> bool:
        """Whether it is as it should be."""
        return self.reason is None


class OwnState:
    """The state of a sidecar.

    Args:
        wedged_after: seconds without progress until a rule counts as wedged.

    Attributes:
        watch: detects rules that make no progress.
        exposition: a function that renders the metrics for an `Accept` header as text, and returns it with its content
            type; only with a listener.
    """

    exposition: Callable[[str], tuple[bytes, str]]

    def __init__(self, sidecar: Sidecar, wedged_after: float) -> None:
        self.watch = ProgressWatch(lambda: sidecar.supervisors, wedged_after)
        self._sidecar = sidecar
        self._rendering = asyncio.Lock()
        self._began, self._began_at = datetime.now(UTC), time.monotonic()

    def startup(self) -> list[Check]:
        """Return the checks of `/startupz`: whether the sidecar has started.

        Reasons for waiting rules are only notes.
        """
        if not self._sidecar.started:
            return [Check("connections", self._sidecar.waiting_for or "not up yet")]
        rules = [_rule_check(supervisor) for supervisor in self._sidecar.supervisors if not supervisor.ready]
        return [Check("connections"), *(Check(rule.name, note=rule.reason or "") for rule in rules)]

    def liveness(self) -> list[Check]:
        """Return the checks of `/livez`. Any answer shows that the event loop runs."""
        return [Check("event loop"), *(_wedged_check(*each) for each in self.watch.wedged().items())]

    def readiness(self, *, of_connections: bool = True) -> list[Check]:
        """Return the checks of `/readyz`: connections, draining, and every rule.

        Args:
            of_connections: False if a connection that is down must fail no check. Rules that wait for it have a note.
        """
        wedged, down = self.watch.wedged(), set[str]() if of_connections else self._down()
        return [
            self._connected(down),
            Check("not draining", "it finishes messages in flight and stops" if self._sidecar.draining else None),
            *(
                _wedged_check(supervisor.rule.name, wedged[supervisor.rule.name])
                if supervisor.rule.name in wedged
                else self._tolerant(_rule_check(supervisor), supervisor, down)
                for supervisor in self._sidecar.supervisors
            ),
        ]

    def _down(self) -> set[str]:
        """Return the connections that no server answers at the moment. One that is rejected is not among them."""
        return {
            name
            for name, each in self._sidecar.connections.items()
            if not each.client.is_connected
            and (each.failure is None or each.failure.passing)
            and not any(failed.rejected for failed in each.failed_attempts)
        }

    def _tolerant(self, check: Check, supervisor: RuleSupervisor, down: Set[str]) -> Check:
        leases = self._sidecar.settings.leadership
        needed = {*supervisor.rule.connections, *([leases.connection] if leases is not None else [])}
        waits = supervisor.failure is None and not down.isdisjoint(needed)
        return Check(check.name, note=check.reason or check.note) if waits else check

    def _connected(self, excluded: Set[str]) -> Check:
        if not self._sidecar.started:
            return self.startup()[0]
        connections = [each for name, each in self._sidecar.connections.items() if name not in excluded]
        wrong = [str(each.failure) for each in connections if each.failure is not None]
        lost = [_lost(each) for each in connections if each.was_up and not each.client.is_connected]
        wrong += [f"not connected: {', '.join(lost)}"] if lost else []
        wrong += [
            f"{each.name!r}: the server refuses the inbox {each.refused_inbox}"
            for each in connections
            if each.refused_inbox
        ]
        return Check("connections", "; ".join(wrong) or None)

    def status(self, *, history: bool) -> dict[str, Any]:
        """Return the whole state; `history` includes the rules' recent events."""
        sidecar, checks, wedged = self._sidecar, self.readiness(), self.watch.wedged()
        reloader = sidecar.reloader
        return {
            "name": sidecar.settings.name,
            "version": version("nats-bridge"),
            "started_at": _as_time(self._began),
            "uptime_s": round(time.monotonic() - self._began_at, 3),
            "at": _as_time(datetime.now(UTC)),
            "ready": all(check.is_good for check in checks),
            "draining": sidecar.draining,
            "why_not_ready": [
                f"{check.name.removeprefix('not ')}: {check.reason}" for check in checks if not check.is_good
            ],
            "event_loop_delay_ms": round(self.watch.longest_delay * 1000, 1),
            "config": {
                "path": str(sidecar.config_path) if sidecar.config_path is not None else None,
                "hash": reloader.file_hash,
                "loaded_at": _as_time(reloader.loaded_at),
                "last_reload": reloader.last.as_dict() if reloader.last is not None else None,
            },
            "connections": [_connection(connection) for connection in sidecar.connections.values()],
            "rules": [
                _rule(supervisor, wedged.get(supervisor.rule.name), history=history)
                for supervisor in sidecar.supervisors
            ],
        }

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics as text, and the content type. `accept` is the header of the request."""
        # With many rules this takes a second or more, and messages must not wait. One at a time is enough.
        async with self._rendering:
            return await asyncio.to_thread(self.exposition, accept)


def _wedged_check(name: str, seconds: float) -> Check:
    return Check(
        f"rule {name}", f"has messages in flight, waits for nothing, and has made no progress for {seconds:.0f} s"
    )


def _rule_check(supervisor: RuleSupervisor) -> Check:
    name = f"rule {supervisor.rule.name}"
    if supervisor.ready:
        return Check(name, note="on standby: another replica leads the rule" if supervisor.state == "standby" else "")
    if (failure := supervisor.failure) is not None:
        again = f"; tried again at {_as_time(failure.again_at)}" if failure.again_at is not None else ""
        return Check(name, f"failed: {_without_name(supervisor, str(failure.error))}{again}")
    if (waiting := _waiting_for(supervisor)) is not None:
        return Check(name, f"waiting: {waiting}")
    return Check(name, _WORDS.get(supervisor.state, f"{supervisor.state}, but not running"))


def _waiting_for(supervisor: RuleSupervisor) -> str | None:
    """Return the obstacle of a rule, in words: its supervisor's (a stream, the lead) or its run's (anything else)."""
    if supervisor.waiting_for is not None:
        return _without_name(supervisor, supervisor.waiting_for)
    is_running = supervisor.run is not None and supervisor.state in ("ready", "waiting")
    return supervisor.run.waiting_for if supervisor.run is not None and is_running else None


def _without_name(supervisor: RuleSupervisor, text: str) -> str:
    return text.removeprefix(f"rule '{supervisor.rule.name}': ")


def _lost(connection: Connection) -> str:
    causes = "; ".join(f"{failed.server}: {failed.reason}" for failed in connection.failed_attempts)
    return f"{connection.name!r} ({causes})" if causes else repr(connection.name)


def _connection(connection: Connection) -> dict[str, Any]:
    connected = connection.client.is_connected
    at, error = connection.last_error or (None, None)
    return {
        "name": connection.name,
        "connected": connected,
        "server": connection.server if connected else None,
        "server_name": connection.client.server_name or None if connected else None,
        "server_version": connection.server_version if connected else None,
        "untested_server": connection.untested_server if connected else None,
        "servers": list(connection.servers),
        "reconnects": connection.reconnects,
        "last_error": error,
        "last_error_at": _as_time(at) if at is not None else None,
        "failed_attempts": [
            {"server": failed.server, "reason": failed.reason, "at": _as_time(failed.at), "count": failed.count}
            for failed in connection.failed_attempts
        ],
    }


def _rule(supervisor: RuleSupervisor, wedged: float | None, *, history: bool) -> dict[str, Any]:
    # One word for people: `ready` only if the rule runs at this moment.
    failure = supervisor.failure
    condition = "waiting" if supervisor.state in ("ready", "standby") and not supervisor.ready else supervisor.state
    return {
        "name": supervisor.rule.name,
        "kind": supervisor.rule.kind,
        "reads_stream": kind_of(supervisor.rule).reads_stream,
        "state": supervisor.state,
        "ready": supervisor.ready and wedged is None,
        "condition": condition if wedged is None else "wedged",
        "leader": supervisor.leader,
        "waiting_for": _waiting_for(supervisor),
        "wedged_s": wedged,
        "error": _without_name(supervisor, str(supervisor.error)) if supervisor.error is not None else None,
        "error_code": failure.code if failure is not None else None,
        "failures": failure.tries if failure is not None else 0,
        "again_at": _as_time(failure.again_at) if failure is not None and failure.again_at is not None else None,
        **supervisor.status(),
        "counters": supervisor.counters(),
        "measures": supervisor.metrics.as_dict(history=history),
        "last_errors": last_errors(supervisor.rule.name),
    }


def _as_time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
