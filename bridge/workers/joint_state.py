"""What is told of a sidecar on several processes: every worker is asked, and their answers are one.

A worker that does not answer, or is not there, makes the answer say so, with the reason, and never keeps it from being
given.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final

from bridge.http.checks import Check
from bridge.http.progress_watch import ProgressWatch
from bridge.http.status_document import as_time, config_document, draining_check, reasons
from bridge.settings import Rule
from bridge.workers.channel import Json
from bridge.workers.forms import checks_from
from bridge.workers.joint import Answers, Joint, places
from bridge.workers.joint_metrics import JointMetrics
from bridge.workers.slot import Slot
from bridge.workers.worker_process import Silent

__all__ = ["JointState"]

_JUST_NOW: Final = "does not have it at the moment"


class JointState:
    """The state of all workers, as `bridge.http.listener.Told` wants it.

    Args:
        foreman: knows the workers.
    """

    def __init__(self, foreman: Joint) -> None:
        self._foreman = foreman
        self._began, self._began_at = datetime.now(UTC), time.monotonic()
        self._watch = ProgressWatch(lambda: (), foreman.settings.http.wedged_after)  # of our own event loop
        self._metrics = JointMetrics(foreman)

    def start(self) -> None:
        """Begin to look how late the event loop is."""
        self._watch.start()

    async def stop(self) -> None:
        """Look no more."""
        await self._watch.stop()

    # -- probes --------------------------------------------------------------------------------------------------------

    async def startup(self) -> list[Check]:
        """What `/startupz` looks at: whether the connections of all workers were up once."""
        return [Check("connections", None if self._foreman.started else "not all were up yet")]

    async def liveness(self) -> list[Check]:
        """What `/livez` looks at: whether each process answers, and no rule is wedged.

        A worker that is not there is none of its matters: it is started again.
        """
        checks = [Check("event loop")]
        for number, told in (await self._ask("liveness")).items():
            if isinstance(told, str):
                silent = self._at_work(number)
                checks.append(Check(f"worker {number}", told if silent else None, note="" if silent else told))
                continue
            checks.append(Check(f"worker {number}"))
            checks += [check for check in checks_from(told["checks"]) if not check.is_good]
        return checks

    async def readiness(self) -> list[Check]:
        """What `/readyz` looks at: connections, draining, and every rule."""
        own = [*await self.startup(), draining_check(draining=self._foreman.draining)]
        known: dict[str, Check] = {}
        silent: dict[int, str] = {}
        for number, told in (await self._ask("readiness")).items():
            if isinstance(told, str):
                silent[number] = told
            else:
                known |= {check.name: check for check in checks_from(told["checks"])}
        for rule, number in places(self._foreman):
            name = f"rule {rule.name}"
            own.append(known.get(name) or Check(name, f"worker {number} {silent.get(number, _JUST_NOW)}"))
        return own

    # -- status --------------------------------------------------------------------------------------------------------

    async def status(self, *, history: bool) -> dict[str, Any]:
        """The whole state: that of one process, with the workers, and the worker of every rule."""
        foreman = self._foreman
        checks, answers = await asyncio.gather(self.readiness(), self._ask("status", history=history))
        documents = {number: told for number, told in answers.items() if not isinstance(told, str)}
        rules = {rule["name"]: rule for document in documents.values() for rule in document["rules"]}
        delays = [document["event_loop_delay_ms"] for document in documents.values()]
        return {
            "name": foreman.settings.name,
            "version": version("nats-bridge"),
            "started_at": as_time(self._began),
            "uptime_s": round(time.monotonic() - self._began_at, 3),
            "at": as_time(datetime.now(UTC)),
            "ready": all(check.is_good for check in checks),
            "draining": foreman.draining,
            "why_not_ready": reasons(checks),
            "event_loop_delay_ms": max(round(self._watch.longest_delay * 1000, 1), *delays, 0),
            "config": config_document(foreman.config_path, foreman.reloader),
            "connections": _connections(documents.values()),
            "workers": [self._worker(slot, answers.get(slot.number, {})) for slot in self._foreman.slots if slot.rules],
            "rules": [
                {**(rules.get(rule.name) or self._unknown(rule, answers.get(number), number)), "worker": number}
                for rule, number in places(self._foreman)
            ],
        }

    def _worker(self, slot: Slot, told: Json | str) -> Json:
        process = slot.process
        used = {} if isinstance(told, str) else told.get("process", {})
        return {
            "worker": slot.number,
            "pid": process.pid if process is not None else None,
            "started_at": as_time(process.began) if process is not None else None,
            "state": "silent" if slot.at_work and isinstance(told, str) else "working" if slot.at_work else "starting",
            "reason": told if isinstance(told, str) else None,
            "rules": list(slot.rules),
            "starts": slot.starts,
            "last_end": slot.last_end,
            "cpu_seconds": used.get("cpu_seconds"),
            "memory_bytes": used.get("memory_bytes"),
        }

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        """The metrics of all workers as text, and its content type; `accept` is the request's header."""
        return self._metrics.exposition(await self._ask("readings"), accept)

    def _unknown(self, rule: Rule, told: Json | str | None, number: int) -> Json:
        """A rule of which nobody tells at the moment: its worker is silent, or not at work."""
        return {
            "name": rule.name,
            "kind": rule.kind,
            "state": "starting",
            "ready": False,
            "condition": "silent" if self._at_work(number) else "starting",
            "leader": None,
            "waiting_for": f"its worker, which {told if isinstance(told, str) else _JUST_NOW}",
            "wedged_s": None,
            "error": None,
            "counters": {},
            "measures": None,
            "last_errors": [],
        }

    def _at_work(self, number: int) -> bool:
        return self._foreman.slots[number - 1].at_work

    # -- the workers ---------------------------------------------------------------------------------------------------

    async def _ask(self, at: str, *, history: bool = False) -> Answers:
        """What all workers with rules say; those that say nothing, why."""
        slots = [slot for slot in self._foreman.slots if slot.rules]
        answers = await asyncio.gather(*(_look(slot, at, history) for slot in slots))
        return {slot.number: told for slot, told in zip(slots, answers, strict=True)}


async def _look(slot: Slot, at: str, history: bool) -> Json | str:
    told = await slot.process.look(at, history=history) if slot.process is not None and slot.at_work else None
    if isinstance(told, Silent):
        return str(told)
    return told if told is not None else slot.down or _JUST_NOW


def _connections(documents: Any) -> list[Json]:
    """Those of all workers, by name: up where all are."""
    merged: dict[str, Json] = {}
    for link in (link for document in documents for link in document["connections"]):
        known = merged.get(link["name"])
        if known is None:
            merged[link["name"]] = dict(link)
            continue
        known["reconnects"] += link["reconnects"]
        if (link["last_error_at"] or "") > (known["last_error_at"] or ""):
            known["last_error"], known["last_error_at"] = link["last_error"], link["last_error_at"]
        if not link["connected"]:
            known["connected"], known["server_version"] = False, None
    return [merged[name] for name in sorted(merged)]
