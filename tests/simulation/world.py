"""Virtual time, and what happens next: the heart of the simulation.

Nothing here waits: time jumps to the next event. The times of events are drawn from the seed. Of two at one time, the
one that was planned first comes first.
"""

from __future__ import annotations

import hashlib
import random
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import TypeAlias

BEGAN_NS = 1_767_225_600_000_000_000
"""The time of day when a simulation begins, in nanoseconds since 1970."""

_REMEMBERED = 400  # lines of the event log, for a failing seed

_MOST_STEPS = 1_000_000  # events in one seed; usual are some ten thousand

Planned: TypeAlias = Callable[[], None]


class EndlessError(Exception):
    """Something repeats without end."""


class World:
    """One simulated world.

    Args:
        seed: from which everything follows.

    Attributes:
        chance: what everything is drawn from.
        now: seconds since the world began.
        steps: how many events there were.
        lines: the newest lines of the event log.
    """

    def __init__(self, seed: int | str, *, remembered: int = _REMEMBERED) -> None:
        self.chance = random.Random(seed)
        self.now = 0.0
        self.steps = 0
        self.lines: deque[str] = deque(maxlen=remembered)
        self._events: list[tuple[float, int, Planned]] = []
        self._planned = 0
        self._until = 0.0
        self._hash = hashlib.blake2b(digest_size=16)
        self._last_ns = 0
        self.clock_step = 0.0  # seconds by which the clock of the sidecars is wrong

    def at(self, when: float, planned: Planned) -> None:
        """Let something happen at a time, in seconds; not before now."""
        self._planned += 1
        heappush(self._events, (when if when > self.now else self.now, self._planned, planned))

    def after(self, seconds: float, planned: Planned) -> None:
        """Let something happen in so many seconds."""
        self._planned += 1
        heappush(self._events, (self.now + seconds, self._planned, planned))

    def advance(self, when: float) -> bool:
        """Let it be that time, if nothing is planned before; if not, plan what is to happen then."""
        events = self._events
        if when > self._until or (events and events[0][0] <= when):
            return False
        self.now = when
        self.steps += 1
        return self.steps <= _MOST_STEPS

    def run(self, until: float) -> None:
        """Let happen what happens until then."""
        events, self._until = self._events, until
        while events and events[0][0] <= until:
            self.now, _, planned = heappop(events)
            self.steps += 1
            if self.steps > _MOST_STEPS:
                raise EndlessError(f"at {self.now:.3f} s: more than {_MOST_STEPS} events")
            planned()
        self.now = max(self.now, until)

    def record(self, line: str) -> None:
        """Write a line of the event log."""
        line = f"{self.now:.6f} {line}"
        self._hash.update(line.encode())
        self.lines.append(line)

    @property
    def digest(self) -> str:
        """The hash of the event log so far."""
        return self._hash.hexdigest()

    @property
    def now_ns(self) -> int:
        """The time of day, in nanoseconds since 1970."""
        return BEGAN_NS + int(self.now * 1e9)

    def stamp(self) -> int:
        """The time of day for a message: never the same twice."""
        self._last_ns = max(self.now_ns, self._last_ns + 1)
        return self._last_ns

    def draw(self, shortest: float, longest: float) -> float:
        """A time between two, in seconds."""
        return shortest + (longest - shortest) * self.chance.random()

    def moment(self, usual: float, *, rarely: float = 0.01, longest: float = 1.0) -> float:
        """How long something takes: about the usual time, and rarely much longer."""
        drawn = self.chance.random()
        if drawn < rarely:
            return longest * self.chance.random()
        return usual * (0.5 + drawn)
