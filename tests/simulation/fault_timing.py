"""When the faults of a seed begin and end: at their times, or at events that the sidecar causes.

Events are requests to the simulated servers (`CONSUMER.INFO ORDERS`) and their answers, deliveries, messages stored,
acknowledgements, flow control, and all that the sidecar logs (`rule.lead_lost`).
"""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.fault_actions import FaultActions
from tests.simulation.faults import ANY, RARE, PlannedFault, soon

if TYPE_CHECKING:
    from tests.simulation.scenario import Scenario

_PATIENCE = 4.0  # seconds that a fault waits for its event


class AwaitedEvent:
    """An event that a fault waits for: the `left`-th one from now on."""

    def __init__(self, kind: str, left: int, then: Callable[[], None]) -> None:
        self.kind, self.left, self.then = kind, left, then


class FaultTiming:
    """Lets faults begin and end.

    Attributes:
        healed: when the last fault so far is over.
    """

    def __init__(self, scenario: Scenario, actions: FaultActions) -> None:
        self.actions = actions
        self.healed = 0.0
        self._scenario, self._world = scenario, scenario.world
        self._followers: dict[tuple[int, str], PlannedFault] = {}
        self._awaited: list[AwaitedEvent] = []
        self._seen: Counter[str] = Counter()  # events, by kind

    def plan(self, faults: Sequence[PlannedFault]) -> None:
        numbers = {fault.number for fault in faults}
        for fault in faults:
            if fault.follows and fault.number - 1 in numbers:
                self._followers[fault.number - 1, fault.follows] = fault
            else:
                self._world.at(fault.at, partial(self._arm, fault))

    def happened(self, event: str) -> None:
        """Note an event, and let begin or end what waits for it."""
        self._seen[event] += 1
        for each in self._awaited[:] if self._awaited else ():
            if each.kind == RARE:
                is_met = self._seen[event] <= each.left
            elif is_met := each.kind in (event, ANY):
                each.left -= 1
                is_met = each.left == 0
            if is_met:
                self._world.record(f"awaited {event}")
                self._resume(each)

    def _await(self, event: str, nth: int, patience: float, then: Callable[[], None]) -> None:
        if event.startswith("~"):
            seen, chosen_by = self._seen, event
            event = min(seen, key=lambda kind: zlib.crc32(f"{chosen_by} {kind}".encode()) * seen[kind] ** 0.5)
        awaited = AwaitedEvent(event, nth, then)
        self._awaited.append(awaited)
        self._world.after(patience, partial(self._resume, awaited))

    def _resume(self, awaited: AwaitedEvent) -> None:
        if awaited in self._awaited:
            self._awaited.remove(awaited)
            self._world.after(0.0, awaited.then)

    def _arm(self, fault: PlannedFault) -> None:
        if fault.event:
            self._await(fault.event, fault.nth, _PATIENCE, partial(self._begin_soon, fault))
        else:
            self._begin_soon(fault, 0.0)

    def _begin_soon(self, fault: PlannedFault, pause: float | None = None) -> None:
        """Begin a fault at once, or in a moment."""
        if pause is None and (pause := fault.pause) is None:
            pause = 0.0 if int(fault.draw * 10) % 2 else soon(random.Random(fault.draw), longest=0.1)
        self._world.after(pause, partial(self._begin, fault))
        self._plan_bursts(fault, self._world.now + pause)

    def _plan_bursts(self, fault: PlannedFault, begin: float) -> None:
        """Publish soon before or after the begin and the end of a fault, so that messages are in flight then."""
        scenario = self._scenario
        chance = random.Random(f"{scenario.replay.seed}/bursts/{fault.number}")
        for moment in () if scenario.is_quiet else (begin, begin + fault.hold):
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
        scenario.judging.fault_phase(fault.number, fault.kind, "begin")
        heal = self.actions.begin(fault)
        self._follow(fault, "begin")
        if heal is None:
            self._end(fault)
        elif fault.until and fault.kind != "sidecar paused":
            self._await(fault.until, fault.last, fault.hold, partial(self._end, fault, heal))
        else:
            self._world.after(fault.hold, partial(self._end, fault, heal))

    def _end(self, fault: PlannedFault, heal: Callable[[], object] | None = None) -> None:
        if heal is not None:
            heal()
            self._scenario.look()
        self._scenario.judging.fault_phase(fault.number, fault.kind, "end")
        self._follow(fault, "end")

    def _follow(self, fault: PlannedFault, moment: str) -> None:
        if (follower := self._followers.get((fault.number, moment))) is not None:
            self._world.after(follower.delay, partial(self._arm, follower))
