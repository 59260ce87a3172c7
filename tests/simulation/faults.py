"""Draws the faults of a seed. `scenario` carries them out."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Replay:
    """Everything that determines a run, so that it can be repeated exactly."""

    seed: int
    kept: tuple[int, ...] | None = None  # numbers of the faults that happen; None for all of the seed
    turn: int = 0  # another number gives other interleavings of the same faults
    minutes: float = 1.0  # of virtual time with faults

    def __str__(self) -> str:
        kept = "" if self.kept is None else f" KEEP={','.join(map(str, self.kept)) or 'none'}"
        turn = f" TURN={self.turn}" if self.turn else ""
        return f"SEED={self.seed}{kept}{turn}" + (f" MINUTES={self.minutes:g}" if self.minutes != 1.0 else "")

    @classmethod
    def parse(cls, text: str) -> Self:
        given = dict(word.split("=", 1) for word in text.split())
        kept = faults_of(given["KEEP"]) if "KEEP" in given else None
        return cls(int(given["SEED"]), kept, int(given.get("TURN", 0)), float(given.get("MINUTES", 1)))


def faults_of(text: str) -> tuple[int, ...]:
    """Numbers of faults, such as `3,7`, or `none`."""
    return tuple(int(each) for each in text.split(",") if each != "none")


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One fault of a seed."""

    number: int  # its place among the seed's faults, from 1 on
    at: float  # the second when it begins
    kind: str  # names are those of `tests.chaos`, because its judge knows the excuses of each
    hold: float  # seconds that it lasts
    draw: float  # from 0 to 1: selects its target, and its variant
    event: str = ""  # what it waits for from then on: it begins soon after the next one

    @property
    def is_odd(self) -> bool:
        """One of two ways in which it ends."""
        return int(self.draw * 10_000) % 2 == 1

    def __str__(self) -> str:
        after = f", after a {self.event}" if self.event else ""
        return f"{self.number:3}  {self.at:9.4f} s  {self.kind}, {self.hold:.4f} s, {self.draw:.4f}{after}"


WEIGHTS = {
    "sidecar killed": (5, 1.0),
    "sidecar restarted": (3, 0.0),
    "sidecar replaced": (4, 0.0),
    "sidecar paused": (2, 12.0),
    "sidecar's clock stepped": (1, 0.0),
    "connections reset": (4, 0.0),
    "network cut": (3, 8.0),
    "network held": (2, 40.0),
    "half open": (2, 40.0),
    "network slow": (2, 5.0),
    "witness cut": (3, 5.0),
    "server killed": (3, 4.0),
    "server restarted": (2, 1.0),
    "power cut": (4, 3.0),
    "stream leader steps down": (3, 3.0),
    "disk full": (1, 4.0),
    "creation times changed": (1, 0.0),
    "PubAcks lost": (2, 3.0),
    "server slow": (3, 6.0),
    "consumer deleted": (2, 0.0),
    "target full": (1, 4.0),
    "messages deleted": (3, 0.0),
    "source purged": (2, 0.0),
}
"""How often each kind is drawn, and how many seconds it lasts at most."""

_SHORTEST, _LONGEST = 0.0001, 10.0  # seconds between a fault and another one that is aimed at it
_NO_FAULT = 0.03  # the part of seeds without a fault
_EVENTS = ("", "", "connection", "consumer")  # what a fault that is aimed waits for: two of four wait for a time


def soon(chance: random.Random, shortest: float = _SHORTEST, longest: float = _LONGEST) -> float:
    """Draw a delay in seconds. Every order of magnitude is equally likely, because races need short delays."""
    return float(shortest * (longest / shortest) ** chance.random())


def schedule(
    chance: random.Random, until: float, *, among: dict[str, tuple[int, float]] = WEIGHTS
) -> list[PlannedFault]:
    """Draw the faults of one seed.

    Half of the seeds focus on a few kinds, so that these meet each other often. A fault can be followed by others that
    are aimed at it: they come soon after it begins or ends, when the sidecar recovers from it. Half of these wait for
    the next connection, or the next consumer, because what the sidecar does then takes only milliseconds. `until` is
    the latest begin of a fault, in seconds.
    """
    if chance.random() < _NO_FAULT:
        return []
    kinds = list(among)
    if chance.random() < 0.5:
        kinds = chance.choices(kinds, [among[kind][0] for kind in kinds], k=chance.choice([1, 2, 2, 3]))
    weights = [among[kind][0] for kind in kinds]
    every, aims = chance.choice([3.0, 6.0, 12.0]), chance.choice([0.2, 0.4, 0.6])
    drawn: list[tuple[float, str, float, float, str]] = []
    at = chance.choice([0.1, 3.0, 3.0]) + chance.expovariate(1 / every)
    while at < until:
        begin, event = at, ""
        while True:
            kind = chance.choices(kinds, weights)[0]
            longest = among[kind][1]
            hold = longest * chance.random() if chance.random() < 0.5 or not longest else soon(chance, 0.001, longest)
            drawn.append((begin, kind, hold, chance.random(), event))
            if chance.random() > aims:
                break
            begin += soon(chance) + (hold if chance.random() < 0.5 else 0.0)
            event = chance.choice(_EVENTS)
        at += chance.expovariate(1 / every)
    ordered = enumerate(sorted(each for each in drawn if each[0] < until), 1)
    return [
        PlannedFault(number, round(at, 5), kind, round(hold, 4), draw, event)
        for number, (at, kind, hold, draw, event) in ordered
    ]
