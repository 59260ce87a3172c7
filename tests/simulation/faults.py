"""Faults as data: which, when, for how long, upon what; drawn from the seed. `scenario` carries them out."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Replay:
    """What makes a run, so that it can be repeated exactly.

    Attributes:
        seed: the seed.
        kept: the numbers of the faults that happen; None for all of the seed's.
        turn: another number lets the same things happen in other interleavings.
        minutes: how long faults happen, in virtual time.
    """

    seed: int
    kept: tuple[int, ...] | None = None
    turn: int = 0
    minutes: float = 1.0

    def __str__(self) -> str:
        kept = "" if self.kept is None else f" KEEP={','.join(map(str, self.kept)) or 'none'}"
        turn = f" TURN={self.turn}" if self.turn else ""
        return f"SEED={self.seed}{kept}{turn}" + (f" MINUTES={self.minutes:g}" if self.minutes != 1.0 else "")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` prints."""
        given = dict(word.split("=", 1) for word in text.split())
        kept = faults_of(given["KEEP"]) if "KEEP" in given else None
        return cls(int(given["SEED"]), kept, int(given.get("TURN", 0)), float(given.get("MINUTES", 1)))


def faults_of(text: str) -> tuple[int, ...]:
    """Numbers of faults, such as `3,7`, or `none`."""
    return tuple(int(each) for each in text.split(",") if each != "none")


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One fault.

    Attributes:
        number: its place among the seed's faults, from 1 on.
        at: when it begins, in seconds.
        kind: what happens; the names are those of `tests.chaos`, whose judge knows what each excuses.
        hold: seconds that it lasts.
        draw: from 0 to 1; which of the things that it can hit, and when exactly.
    """

    number: int
    at: float
    kind: str
    hold: float
    draw: float

    @property
    def is_odd(self) -> bool:
        """One of two ways in which it ends."""
        return int(self.draw * 10_000) % 2 == 1

    def __str__(self) -> str:
        return f"{self.number:3}  {self.at:8.3f} s  {self.kind}, {self.hold:.3f} s, {self.draw:.4f}"


WEIGHTS = {
    "sidecar killed": (5, 1.0),
    "sidecar restarted": (3, 0.0),
    "sidecar paused": (2, 12.0),
    "connections reset": (4, 0.0),
    "network cut": (3, 8.0),
    "network held": (2, 40.0),
    "half open": (2, 40.0),
    "network slow": (2, 5.0),
    "witness cut": (2, 5.0),
    "server killed": (3, 4.0),
    "server restarted": (2, 1.0),
    "power cut": (3, 3.0),
    "creation times changed": (1, 0.0),
    "PubAcks lost": (2, 3.0),
    "PubAcks late": (2, 6.0),
    "consumer deleted": (2, 0.0),
    "target full": (1, 4.0),
    "messages deleted": (2, 0.0),
    "source purged": (1, 0.0),
}
"""How often each kind is drawn, and how long it lasts at most."""


def schedule(
    chance: random.Random, until: float, *, among: dict[str, tuple[int, float]] = WEIGHTS
) -> list[PlannedFault]:
    """Draw the faults of one seed.

    Args:
        chance: what they are drawn from.
        until: when the last one begins at the latest, in seconds.
        among: the kinds.
    """
    kinds, weights = list(among), [weight for weight, _ in among.values()]
    # Some seeds have one fault in peace, some have a storm.
    every = chance.choice([2.0, 6.0, 15.0])
    faults: list[PlannedFault] = []
    at = 3.0 + chance.expovariate(1 / every)
    while at < until:
        kind = chance.choices(kinds, weights)[0]
        hold = round(among[kind][1] * chance.random(), 3)
        faults.append(PlannedFault(len(faults) + 1, round(at, 3), kind, hold, chance.random()))
        # Some come at once, so that one meets the recovery from the other.
        at += chance.expovariate(1 / every) if chance.random() < 0.6 else 2.0 * chance.random() ** 2
    return faults
