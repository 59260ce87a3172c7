"""What goes between the foreman and a worker, as plain data and back."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterable, Sequence
from typing import Any, Final

from bridge.http.checks import Check
from bridge.latency import Latencies
from bridge.settings import Settings
from bridge.telemetry.names import METRICS
from bridge.telemetry.readings import Reading

__all__ = ["checks_from", "checks_to", "readings_from", "readings_to", "settings_from", "settings_to"]

_BY_NAME: Final = {metric.prometheus: metric for metric in METRICS}


def settings_to(settings: Settings) -> str:
    """A validated configuration. Secrets are not in it, only the paths of their files.

    A worker must have exactly what the foreman has read, which the file may not say any more. The same program is on
    both sides, and nobody else can reach the sockets.
    """
    return base64.b64encode(pickle.dumps(settings)).decode()


def settings_from(data: str) -> Settings:
    """`settings_to`, back."""
    settings = pickle.loads(base64.b64decode(data))  # of our own foreman, by a pair of sockets
    assert isinstance(settings, Settings)
    return settings


def checks_to(checks: Iterable[Check]) -> list[list[str | None]]:
    """What a probe looked at."""
    return [[check.name, check.reason, check.note] for check in checks]


def checks_from(data: Iterable[Sequence[Any]]) -> list[Check]:
    """`checks_to`, back."""
    return [Check(name, reason, note) for name, reason, note in data]


def readings_to(readings: Iterable[Reading]) -> list[list[Any]]:
    """Metrics."""
    return [
        [metric.prometheus, labels, [value.counts, value.total] if isinstance(value, Latencies) else value]
        for metric, labels, value in readings
    ]


def readings_from(data: Iterable[Sequence[Any]]) -> list[Reading]:
    """`readings_to`, back."""
    return [(_BY_NAME[name], tuple(labels), _value(value)) for name, labels, value in data]


def _value(value: Any) -> float | Latencies:
    if not isinstance(value, list):
        return value  # type: ignore[no-any-return]
    found = Latencies()
    found.counts, found.total = list(value[0]), float(value[1])
    return found
