"""Detects wedged rules: messages in flight, no named obstacle, no progress.

A failed liveness probe gets the whole process killed, so it must fail only for faults of the sidecar. A server that is
down, full, without a leader or frozen is not one: a restart would not help, and an outage would restart every pod at
once. So time counts against a rule only while all of this is true at every check:

* it is running (`ready`), and was not just started, stopped or replaced;
* it has received messages that are not published yet (`has_work`);
* it is not waiting for anything (`waiting_for`);
* none of its counters has changed;
* each of its servers has answered a PING since the last check, on the connection that the rule uses.

The checks are also the heartbeat of the event loop: their delay is the time for which it was blocked.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import structlog

from nats_bridge.client.connection import Connection
from nats_bridge.client.tasks import end_tasks
from nats_bridge.client.waiting import EVERY_SECOND
from nats_bridge.rules.run import RuleRun
from nats_bridge.rules.supervisor import RuleSupervisor

_log = structlog.get_logger("bridge.http")

_REMEMBERED = 60  # checks whose delays are remembered


@dataclass(slots=True)
class _Look:
    """The last state of a rule, and for how long it is unchanged."""

    run: RuleRun
    counted: Mapping[str, int]
    still: int = 0  # checks without progress that count
    pings: dict[Connection, asyncio.Task[bool]] = field(default_factory=dict)


class ProgressWatch:
    """Checks the rules once a second.

    Args:
        supervisors: returns the supervisors of the rules.
        patience: seconds without progress until a rule counts as wedged.

    Attributes:
        looks: the number of checks so far.
    """

    def __init__(self, supervisors: Callable[[], Iterable[RuleSupervisor]], patience: float) -> None:
        self.looks = 0
        self._supervisors = supervisors
        self._patience = patience
        self._looks: dict[str, _Look] = {}
        self._delays: deque[float] = deque(maxlen=_REMEMBERED)
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start checking."""
        self._looking = asyncio.create_task(self._keep_checking())

    async def stop(self) -> None:
        """Stop checking."""
        pings = [ping for look in self._looks.values() for ping in look.pings.values()]
        await end_tasks(self._looking, *pings)

    def wedged(self) -> dict[str, float]:
        """Return the wedged rules, and the seconds for which each has made no progress."""
        stuck = {name: look.still * EVERY_SECOND for name, look in self._looks.items()}
        return {name: seconds for name, seconds in stuck.items() if seconds >= self._patience}

    @property
    def longest_delay(self) -> float:
        """The longest time in seconds for which the event loop was blocked in the last minute."""
        return max(self._delays, default=0.0)

    async def _keep_checking(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + EVERY_SECOND
            await asyncio.sleep(EVERY_SECOND)
            self._delays.append(max(loop.time() - due, 0.0))
            try:
                self.look()
            except Exception as error:
                # An error here must end neither the checks nor the process, because the rules may be healthy.
                _log.error("http.watch_failed", reason=str(error), exc_info=error)

    def look(self) -> None:
        """Check every rule once."""
        self.looks += 1
        rules = {supervisor.rule.name: supervisor.run for supervisor in self._supervisors()}
        for name in self._looks.keys() - rules.keys():
            self._forget(name)
        for name, run in rules.items():
            if run is None or run.state != "ready" or run.waiting_for is not None or not run.has_work:
                self._forget(name)
            else:
                self._check(name, run)

    def _check(self, name: str, run: RuleRun) -> None:
        counted = run.counters.as_dict()
        look = self._looks.get(name)
        if look is None or look.run is not run or look.counted != counted:
            self._forget(name)
            self._looks[name] = _Look(run, counted)
            return
        connections, pings = dict.fromkeys(run.connections), look.pings
        if pings and not all(ping.done() for ping in pings.values()):
            return  # a server that does not answer: no fault of the rule
        if pings.keys() == connections.keys() and all(
            not ping.cancelled() and ping.result() for ping in pings.values()
        ):
            look.still += 1
        look.pings = {connection: asyncio.create_task(_answers(connection)) for connection in connections}

    def _forget(self, name: str) -> None:
        look = self._looks.pop(name, None)
        if look is not None:
            for ping in look.pings.values():
                ping.cancel()


async def _answers(connection: Connection) -> bool:
    try:
        return await connection.flush()
    except (OSError, ConnectionError):
        return False
