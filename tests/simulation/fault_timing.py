"""When the faults of a seed begin and end: at their times, or soon after the sidecar has caused an event."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.fault_actions import FaultActions
from tests.simulation.faults import PlannedFault, soon

if TYPE_CHECKING:
    from tests.simulation.scenario import Scenario

_PATIENCE = 10.0  # seconds that a fault waits for its event


class FaultTiming:
    """Lets faults begin and end.

    Attributes:
        healed: when the last fault so far is over.
    """

    def __init__(self, scenario: Scenario, actions: FaultActions) -> None:
        self.actions = actions
        self.healed = 0.0
        self._scenario, self._world = scenario, scenario.world
        self._waiting: list[PlannedFault] = []  # for an event

    def plan(self, faults: Iterable[PlannedFault]) -> None:
        for fault in faults:
            if fault.event:
                self._world.at(fault.at, partial(self._waiting.append, fault))
                self._world.at(fault.at + _PATIENCE, partial(self._let_begin, fault))
            else:
                self._world.at(fault.at, partial(self._begin, fault))
                self._plan_bursts(fault, fault.at)

    def happened(self, event: str) -> None:
        """Let the faults that wait for an event begin."""
        for fault in [each for each in self._waiting if each.event == event]:
            self._let_begin(fault)

    def _let_begin(self, fault: PlannedFault) -> None:
        """Let a fault that still waits begin in a moment."""
        if fault in self._waiting:
            self._waiting.remove(fault)
            begin = self._world.now + soon(random.Random(fault.draw), longest=0.1)
            self._world.at(begin, partial(self._begin, fault))
            self._plan_bursts(fault, begin)

    def _plan_bursts(self, fault: PlannedFault, begin: float) -> None:
        """Publish soon before or after the begin and the end of a fault, so that messages are in flight then."""
        scenario = self._scenario
        chance = random.Random(f"{scenario.replay.seed}/bursts/{fault.number}")
        for moment in (begin, begin + fault.hold):
            for _ in range(chance.choice([0, 0, 1, 1, 3])):
                at = moment + chance.choice([-1, 1]) * soon(chance, longest=1.0)
                size = chance.randrange(1, scenario.largest_batch + 1)
                self._world.at(at, partial(scenario.publish, chance.choice(sorted(scenario.produced)), size))

    def _begin(self, fault: PlannedFault) -> None:
        scenario = self._scenario
        if not scenario.is_open:
            return
        self.healed = max(self.healed, self._world.now + fault.hold)
        scenario.look()
        scenario.judging.fault_begins(fault.number, fault.kind)
        if (heal := self.actions.begin(fault)) is None:
            scenario.judging.fault_ends(fault.number, fault.kind)
        else:
            self._world.after(fault.hold, partial(self._heal, fault, heal))

    def _heal(self, fault: PlannedFault, heal: Callable[[], None]) -> None:
        heal()
        self._scenario.look()
        self._scenario.judging.fault_ends(fault.number, fault.kind)
