"""Logs a rule that has not been ready for ten seconds, once, with the reason."""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from nats_bridge.client.waiting import EVERY_SECOND
from nats_bridge.rules.supervisor import RuleSupervisor

_log = structlog.get_logger("bridge.rule")

_PATIENCE = 10.0  # seconds that a rule may be not ready before this is logged
_SAID_ELSEWHERE = ("waiting", "draining", "stopped", "failed")


async def watch_readiness(supervisors: Callable[[], Sequence[RuleSupervisor]]) -> None:
    """Watch the readiness of all rules of a sidecar, until cancelled.

    Args:
        supervisors: the rules at this moment.
    """
    loop = asyncio.get_running_loop()
    since: dict[str, float] = {}  # when a rule was first seen not ready
    reported: set[str] = set()
    while True:
        now, before, since = loop.time(), since, {}
        for supervisor in supervisors():
            name = supervisor.rule.name
            if supervisor.ready or supervisor.state in _SAID_ELSEWHERE:
                reported.discard(name)
                continue
            began = since[name] = before.get(name, now)
            if now - began >= _PATIENCE and name not in reported:
                reported.add(name)
                _log.warning(
                    "rule.not_ready", rule=name, waiting_for=supervisor.waiting_for, for_seconds=round(now - began, 1)
                )
        await asyncio.sleep(EVERY_SECOND)
