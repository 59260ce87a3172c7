"""Fewer faults that still break the same promise: delta debugging over the schedule of a failing seed."""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.faults import PlannedFault
from tests.simulation.scenario import Found, run_seed

_TURNS = 3  # other interleavings in which a smaller schedule is tried at the end


class Shrinking:
    """Removes faults from failing runs: halves first, then single ones, the late ones before the early ones.

    A run without a fault draws other values after it, so a race may not happen again. In the end, each fault is
    therefore left out in other interleavings as well.
    """

    def __init__(self, most: int) -> None:
        self.left = most  # runs, for all seeds together
        self._promise = ""  # the first one that the original run breaks

    def smallest(self, found: Found) -> Found:
        """Return the run with the fewest faults that breaks the first promise that this one breaks."""
        self._promise = found.promises[0]
        for turns in (0, _TURNS):
            size = len(found.faults)
            while size:
                found, smaller = self._without_pieces(found, size, turns)
                if not smaller or size > 1:
                    size //= 2
        return found

    def _without_pieces(self, found: Found, size: int, turns: int) -> tuple[Found, bool]:
        """Leave out `size` neighbouring faults at a time, from the last ones to the first ones."""
        before = found
        for end in range(len(found.faults), 0, -size):
            kept = found.faults[: max(end - size, 0)] + found.faults[end:]
            found = self._still_breaks(found, kept, turns) or found
        return found, found is not before

    def _still_breaks(self, found: Found, faults: tuple[PlannedFault, ...], turns: int) -> Found | None:
        kept = tuple(fault.number for fault in faults)
        for turn in range(found.replay.turn, found.replay.turn + turns + 1):
            if not self.left:
                break
            self.left -= 1
            shorter = run_seed(replace(found.replay, kept=kept, turn=turn))
            if self._promise in shorter.promises:
                return shorter
        return None
