"""The metrics of all workers as those of one process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from bridge.telemetry import names
from bridge.telemetry.exposition import Exposition
from bridge.telemetry.readings import Reading
from bridge.workers.forms import readings_from
from bridge.workers.joint import Answers, Joint, places

__all__ = ["JointMetrics"]

_OF_EACH_PROCESS: Final = {names.READY, names.START_TIME, names.BUILD_INFO, names.RELOADS}
"""Metrics that are the foreman's."""


class JointMetrics:
    """Adds up what workers say.

    Args:
        joint: knows the workers.
    """

    def __init__(self, joint: Joint) -> None:
        self._joint = joint
        self._readings: list[Reading] = []
        self._exposition = Exposition(lambda: self._readings)
        self._reconnects: dict[tuple[int, int], Counter[str]] = {}  # by worker and process, as last told
        self._cpu: dict[tuple[int, int], float] = {}

    def exposition(self, answers: Answers, accept: str) -> tuple[bytes, str]:
        """The text for Prometheus, and its content type.

        Args:
            answers: the readings of the workers.
            accept: what the asker takes.
        """
        self._readings = self._merged(answers)
        return self._exposition(accept)

    def _merged(self, answers: Answers) -> list[Reading]:
        """One set of readings: what concerns no rule is added up over the workers, or is the foreman's."""
        up: dict[str, float] = {}
        merged: list[Reading] = []
        all_ready = True
        for number, told in answers.items():
            slot = self._joint.slots[number - 1]
            if isinstance(told, str):
                all_ready = False
                rules = [rule for rule, on in places(self._joint) if on == number]
                merged += [(names.RULE_READY, (rule.name, rule.kind), 0) for rule in rules]
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
        ready: Reading = (names.READY, (), int(all_ready and self._joint.started and not self._joint.draining))
        own = [ready if reading[0] is names.READY else reading for reading in self._joint.telemetry.readings()]
        # Also those of processes that are gone: a counter never falls.
        total: Counter[str] = sum(self._reconnects.values(), Counter())
        for name, value in up.items():
            own += [(names.CONNECTION_UP, (name,), value), (names.CONNECTION_RECONNECTS, (name,), total[name])]
        return [*own, *self._of_workers(answers), *merged]

    def _of_workers(self, answers: Answers) -> Iterator[Reading]:
        for number, told in answers.items():
            slot, labels = self._joint.slots[number - 1], (str(number),)
            answered = not isinstance(told, str)
            yield names.WORKER_UP, labels, int(slot.at_work and answered)
            yield names.WORKER_STARTS, labels, slot.starts
            yield names.WORKER_CPU, labels, sum(used for (of, _), used in self._cpu.items() if of == number)
            if answered and isinstance(told, dict) and told["process"]["memory_bytes"] is not None:
                yield names.WORKER_MEMORY, labels, told["process"]["memory_bytes"]
