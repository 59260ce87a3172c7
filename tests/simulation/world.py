"""Virtual time and planned events.

Nothing here waits: time jumps to the next event. If two events have the same time, the one that was planned first comes
first.
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


class World:
    """Virtual time, in seconds since the world began, and its planned events. All draws come from the seed."""

    def __init__(self, seed: int | str) -> None:
        self.chance = random.Random(seed)
        self.now, self.steps = 0.0, 0
        self.lines: deque[str] = deque(maxlen=_REMEMBERED)
        self._events: list[tuple[float, int, Planned]] = []
        self._planned = 0
        self._until = 0.0
        self._hash = hashlib.blake2b(digest_size=16)
        self._last_ns = 0
        self.clock_step = 0.0  # seconds by which the clock of the sidecars is wrong

    def at(self, when: float, planned: Planned) -> None:
        """Plan an event for a time, but not before now."""
        self._planned += 1
        heappush(self._events, (when if when > self.now else self.now, self._planned, planned))

    def after(self, seconds: float, planned: Planned) -> None:
        """Plan an event after this many seconds."""
        self._planned += 1
        heappush(self._events, (self.now + seconds, self._planned, planned))

    def advance(self, when: float) -> bool:
        """Move to a time if no event is planned before it. Return whether it did."""
        events = self._events
        if when > self._until or (events and events[0][0] <= when):
            return False
        self.now = when
        self.steps += 1
        return self.steps <= _MOST_STEPS

    def run(self, until: float) -> None:
        """Carry out the events up to a time."""
        events, self._until = self._events, until
        while events and events[0][0] <= until:
            self.now, _, planned = heappop(events)
            self.steps += 1
            if self.steps > _MOST_STEPS:
                raise RuntimeError(f"at {self.now:.3f} s: more than {_MOST_STEPS} events")
            planned()
        self.now = max(self.now, until)

    def record(self, line: str) -> None:
        line = f"{self.now:.6f} {line}"
        self._hash.update(line.encode())
        self.lines.append(line)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    @property
    def now_ns(self) -> int:
        return BEGAN_NS + int(self.now * 1e9)

    def stamp(self) -> int:
        """The time of day for a message. No two are equal."""
        self._last_ns = max(self.now_ns, self._last_ns + 1)
        return self._last_ns

    def draw(self, shortest: float, longest: float) -> float:
        """Draw a number of seconds between two."""
        return shortest + (longest - shortest) * self.chance.random()

    def moment(self, usual: float, *, rarely: float = 0.01, longest: float = 1.0) -> float:
        """Draw a duration: about the usual one, and rarely a much longer one."""
        drawn = self.chance.random()
        if drawn < rarely:
            return longest * self.chance.random()
        return usual * (0.5 + drawn)
