"""Logs, once, what a rule waits for when it has not been ready for ten seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from nats_bridge.bridge.rules.supervisor import RuleSupervisor

_log = structlog.get_logger("bridge.rule")

_PATIENCE = 10.0  # seconds for which a rule may be not ready before that is logged
_LOOK = 2.0  # seconds between two checks of all rules
_SAID_ELSEWHERE = ("waiting", "draining", "stopped", "failed")


class ReadinessWatch:
    """Watches the readiness of all rules of a sidecar.

    Args:
        supervisors: the rules at this moment.
    """

    def __init__(self, supervisors: Callable[[], Sequence[RuleSupervisor]]) -> None:
        self._supervisors = supervisors
        self._since: dict[str, float] = {}  # when a rule was first seen not ready
        self._reported: set[str] = set()

    async def run(self) -> None:
        """Check until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self.look(loop.time())
            await asyncio.sleep(_LOOK)

    def look(self, now: float) -> None:
        """Log the rules that have not been ready for too long.

        Args:
            now: seconds, of a monotonic clock.
        """
        since, self._since = self._since, {}
        for supervisor in self._supervisors():
            name = supervisor.rule.name
            if supervisor.ready or supervisor.state in _SAID_ELSEWHERE:
                self._reported.discard(name)
                continue
            began = self._since[name] = since.get(name, now)
            if now - began >= _PATIENCE and name not in self._reported:
                self._reported.add(name)
                _log.warning(
                    "rule.not_ready", rule=name, waiting_for=supervisor.waiting_for, for_seconds=round(now - began, 1)
                )
