"""What is told of a sidecar on several processes: every worker is asked, and their answers are one.

A worker that does not answer, or is not there, makes the answer say so, with the reason, and never keeps it from being
given.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from bridge.http.probes import Check
from bridge.http.progress_watch import ProgressWatch
from bridge.http.status_document import as_time, config_document, draining_check, reasons
from bridge.reloading import Reloader
from bridge.settings import Rule, Settings
from bridge.telemetry import names
from bridge.telemetry.exposition import Exposition
from bridge.telemetry.readings import Reading
from bridge.telemetry.service import Telemetry
from bridge.workers.channel import Json
from bridge.workers.forms import checks_from, readings_from
from bridge.workers.slot import Slot
from bridge.workers.worker_process import Silent

__all__ = ["JointState"]

_OF_EACH_PROCESS: Final = {names.READY, names.START_TIME, names.BUILD_INFO, names.RELOADS}
"""Metrics that are the foreman's."""


class _Foreman(Protocol):
    @property
    def settings(self) -> Settings:
        """The configuration."""

    @property
    def slots(self) -> Sequence[Slot]:
        """The workers."""

    @property
    def shares(self) -> Mapping[str, int]:
        """The worker of every rule."""

    @property
    def config_path(self) -> Path:
        """The configuration file."""

    @property
    def reloader(self) -> Reloader:
        """What reads it again."""

    @property
    def telemetry(self) -> Telemetry:
        """Metrics of the foreman's own."""

    @property
    def started(self) -> bool:
        """Whether the connections were up once."""

    @property
    def draining(self) -> bool:
        """Whether it is on its way out."""


_Answers: TypeAlias = dict[int, Json | str]
"""By worker: what it says, or why it says nothing."""


class JointState:
    """The state of all workers, as `bridge.http.listener.Told` wants it.

    Args:
        foreman: knows the workers.
    """

    def __init__(self, foreman: _Foreman) -> None:
        self._foreman = foreman
        self._began, self._began_at = datetime.now(UTC), time.monotonic()
        self._watch = ProgressWatch(lambda: (), foreman.settings.http.wedged_after)  # of our own event loop
        self._readings: list[Reading] = []
        self._exposition = Exposition(lambda: self._readings)
        self._reconnects: dict[tuple[int, int], Counter[str]] = {}  # by worker and process, as last told
        self._cpu: dict[tuple[int, int], float] = {}

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
                silent = self._slot(number).at_work
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
        for rule, number in self._places():
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
                {**(rules.get(rule.name) or _unknown(rule, answers.get(number))), "worker": number}
                for rule, number in self._places()
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

    # -- metrics -------------------------------------------------------------------------------------------------------

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        """The metrics of all workers as text, and its content type; `accept` is the request's header."""
        self._readings = self._merged(await self._ask("readings"))
        return self._exposition(accept)

    def _merged(self, answers: _Answers) -> list[Reading]:
        """One set of readings: what concerns no rule is added up over the workers, or is the foreman's."""
        up: dict[str, float] = {}
        merged: list[Reading] = []
        all_ready = True
        for number, told in answers.items():
            slot = self._slot(number)
            if isinstance(told, str):
                all_ready = False
                merged += [(names.RULE_READY, (rule.name, rule.kind), 0) for rule, on in self._places() if on == number]
                continue
            reconnects = self._reconnects[number, slot.starts] = Counter()
            self._cpu[number, slot.starts] = told["process"]["cpu_seconds"]
            for metric, labels, value in readings_from(told["readings"]):
                if metric is names.READY:
                    all_ready = all_ready and value == 1
                elif metric is names.CONNECTION_UP and isinstance(value, int):
                    up[labels[0]] = min(up.get(labels[0], 1), value)
                elif metric is names.CONNECTION_RECONNECTS and isinstance(value, int):
                    reconnects[labels[0]] += value
                elif metric not in _OF_EACH_PROCESS:
                    merged.append((metric, labels, value))
        ready: Reading = (names.READY, (), int(all_ready and self._foreman.started and not self._foreman.draining))
        own = [ready if reading[0] is names.READY else reading for reading in self._foreman.telemetry.readings()]
        # Also those of processes that are gone: a counter never falls.
        total: Counter[str] = sum(self._reconnects.values(), Counter())
        for name, value in up.items():
            own += [(names.CONNECTION_UP, (name,), value), (names.CONNECTION_RECONNECTS, (name,), total[name])]
        return [*own, *self._of_workers(answers), *merged]

    def _of_workers(self, answers: _Answers) -> Iterator[Reading]:
        for number, told in answers.items():
            slot, labels = self._slot(number), (str(number),)
            answered = not isinstance(told, str)
            yield names.WORKER_UP, labels, int(slot.at_work and answered)
            yield names.WORKER_STARTS, labels, slot.starts
            yield names.WORKER_CPU, labels, sum(used for (of, _), used in self._cpu.items() if of == number)
            if answered and isinstance(told, dict) and told["process"]["memory_bytes"] is not None:
                yield names.WORKER_MEMORY, labels, told["process"]["memory_bytes"]

    # -- the workers ---------------------------------------------------------------------------------------------------

    async def _ask(self, at: str, *, history: bool = False) -> _Answers:
        """What all workers with rules say; those that say nothing, why."""
        slots = [slot for slot in self._foreman.slots if slot.rules]
        answers = await asyncio.gather(*(_look(slot, at, history) for slot in slots))
        return {slot.number: told for slot, told in zip(slots, answers, strict=True)}

    def _slot(self, number: int) -> Slot:
        return self._foreman.slots[number - 1]

    def _places(self) -> list[tuple[Rule, int]]:
        """The rules in the order of the configuration, and their workers."""
        shares = self._foreman.shares
        return [(rule, shares[rule.name]) for rule in self._foreman.settings.rules if rule.name in shares]


_JUST_NOW: Final = "does not have it at the moment"


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


def _unknown(rule: Rule, told: Json | str | None) -> Json:
    """A rule of which nobody tells at the moment."""
    return {
        "name": rule.name,
        "kind": rule.kind,
        "state": "starting",
        "ready": False,
        "condition": "starting",
        "leader": None,
        "waiting_for": f"its worker, which {told if isinstance(told, str) else _JUST_NOW}",
        "wedged_s": None,
        "error": None,
        "counters": {},
        "measures": None,
        "last_errors": [],
    }
