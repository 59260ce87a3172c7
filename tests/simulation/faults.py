"""Draws the faults of a seed. `scenario` carries them out."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml


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
    at: float  # the second when it begins, or waits for its event; the earliest one if it follows another fault
    kind: str  # names are those of `tests.chaos`, because its judge knows the excuses of each
    hold: float  # seconds that it lasts
    draw: float  # from 0 to 1: selects its target, and its variant
    follows: str = ""  # "begin" or "end" of the fault before, and the seconds after it
    delay: float = 0.0
    event: str = ""  # what it waits for from then on: it begins at the next one, or soon after it
    nth: int = 1  # of these events
    until: str = ""  # an event that ends it earlier
    last: int = 1  # of these events
    pause: float | None = None  # seconds from its event to its begin; None for a drawn number

    @property
    def is_odd(self) -> bool:
        """One of two ways in which it ends."""
        return int(self.draw * 10_000) % 2 == 1

    def __str__(self) -> str:
        follows = f", {self.delay:.4f} s after the {self.follows} of {self.number - 1}" if self.follows else ""
        after = f", at {self.event} {self.nth}" if self.event else ""
        until = f", until {self.until}" if self.until else ""
        what = f"{self.kind}, {self.hold:.4f} s, {self.draw:.4f}"
        return f"{self.number:3}  {self.at:9.4f} s  {what}{follows}{after}{until}"


_DRAWN = yaml.safe_load(Path(__file__).with_name("faults.yaml").read_text())
WEIGHTS: dict[str, tuple[int, float]] = {kind: tuple(drawn) for kind, drawn in _DRAWN["kinds"].items()}
"""How often each kind is drawn, and how many seconds it lasts at most."""

ANY = "any event"
RARE = "rare"  # an event of a kind that has hardly happened before: at most as often as a fault's `nth`
_ELECTION = {"power cut of a stream": 4.0}  # seconds that a kind lasts at least, whatever happens
_SHORTEST, _LONGEST = 0.0001, 10.0  # seconds between a fault and another one that is aimed at it
_NO_FAULT = 0.03  # the part of seeds without a fault
_ALL = 0.2  # the part of seeds with all kinds of faults
_BACKGROUND = {"messages deleted": (0.0005, 3.0), "slow consumer": (1.0, 10.0), "sidecar replaced": (1.0, 10.0)}
_REPEATED = 0.4  # the part of seeds in which one of these happens all the time in addition, with these pauses (seconds)
_FACTOR = 20  # the number of an event is drawn up to this
_PROFILES: list[dict[str, Any]] = _DRAWN["profiles"]
_PROFILED = 0.45  # the part of seeds with a profile
_RANGES = {"hold": (0.001, 0.001), "delay": (0.001, 0.001), "pause": (0.0001, 0.01), "nth": (1, 1), "last": (1, 1)}


def profile_of(seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Draw a seed's profile and its circumstances. Both are empty for most seeds."""
    chance = random.Random(f"{seed}/profile")
    profile = chance.choice(_PROFILES) if chance.random() < _PROFILED else {}
    return profile, {name: chance.choice(values) for name, values in profile.get("given", {}).items()}


def chained(chance: random.Random, until: float, profile: dict[str, Any]) -> list[PlannedFault]:
    """Draw the faults of a seed with a profile."""
    planned: list[PlannedFault] = []
    at = chance.choice([0.1, 3.0]) + chance.expovariate(1.0)
    while at < until:
        planned += _links(chance, len(planned), at, profile["chain"])
        at += chance.expovariate(1 / profile["every"])
    return planned


def _links(chance: random.Random, before: int, at: float, chain: list[dict[str, Any]]) -> Iterator[PlannedFault]:
    draw = 0.0
    for number, step in enumerate(chain, before + 1):
        kind, event, until = (chance.choice(step.get(name, [""])) for name in ("kinds", "events", "until"))
        drawn = (round(soon(chance, *step.get(name, usual)), 5) for name, usual in _RANGES.items())
        hold, delay, pause, nth, last = drawn
        draw = draw if step.get("draw") == "same" else chance.uniform(*step.get("draw", (0.0, 1.0)))
        if "odd" in step:
            draw = (int(draw * 5_000) * 2 + step["odd"] + 0.5) / 10_000
        hold, follows = max(hold, _ELECTION.get(kind, 0.0)), step.get("follows", "")
        at = round(at + delay + (hold if follows == "end" else 0.0), 5)
        yield PlannedFault(number, at, kind, hold, draw, follows, delay, event, int(nth), until, int(last), pause)


def soon(chance: random.Random, shortest: float = _SHORTEST, longest: float = _LONGEST) -> float:
    """Draw a delay in seconds. Every order of magnitude is equally likely, because races need short delays."""
    return float(shortest * (longest / shortest) ** chance.random())


def schedule(
    chance: random.Random, until: float, *, among: dict[str, tuple[int, float]] = WEIGHTS
) -> list[PlannedFault]:
    """Draw the faults of one seed, which begin until a second.

    Most seeds have a few kinds of faults, and wait for a few events, so that these meet each other often. Faults that
    follow another one come when the sidecar recovers from it. Most of these wait for an event, such as the n-th one of
    any kind, or one of a kind that the run has already caused (a number such as `~417` chooses it, rare ones often).
    """
    if chance.random() < _NO_FAULT:
        return []
    kinds = list(among)
    weights = [among[kind][0] for kind in kinds]
    if chance.random() >= _ALL:
        kinds = chance.choices(kinds, weights, k=chance.choice([1, 2, 2, 3, 3, 4, 6]))
        weights = [1] * len(kinds)
    events = ["", "connection", RARE, ANY, ANY, *(f"~{chance.randrange(1000)}" for _ in range(3))]
    if chance.random() < 0.5:
        events = chance.sample(events, 3)
    every, aims = until / chance.choice([2, 4, 8]), chance.choice([0.4, 0.6, 0.8])
    at = chance.choice([0.1, 3.0, 3.0]) + chance.expovariate(1 / every)
    planned: list[PlannedFault] = []
    while at < until:
        begin, follows, delay = at, "", 0.0
        while begin < until:
            kind = chance.choices(kinds, weights)[0]
            longest = among[kind][1]
            hold = longest * chance.random() if chance.random() < 0.5 or not longest else soon(chance, 0.001, longest)
            hold = max(hold, _ELECTION.get(kind, 0.0))
            event = chance.choice(events) if follows or chance.random() < 0.3 else ""
            nth = int(soon(chance, 1, _FACTOR)) if chance.random() < 0.5 else 1
            ends = chance.choice(events) if chance.random() < 0.3 and hold > 0 and kind not in _ELECTION else ""
            numbers = len(planned) + 1, round(begin, 5), kind, round(hold, 4), chance.random()
            planned.append(PlannedFault(*numbers, follows, round(delay, 5), event, nth, ends))
            if chance.random() > aims:
                break
            follows, delay = chance.choice(["begin", "end"]), soon(chance)
            begin += delay + (hold if follows == "end" else 0.0)
        at += chance.expovariate(1 / every)
    kind, at = chance.choice(list(_BACKGROUND)), 3.0 if chance.random() < _REPEATED else until
    while (at := at + soon(chance, *_BACKGROUND[kind])) < until:
        planned.append(PlannedFault(len(planned) + 1, round(at, 5), kind, 0.0, chance.random()))
    return planned
