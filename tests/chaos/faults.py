"""Faults as data: which, upon what, for how long, all drawn from the seed. `nemesis` carries them out."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from tests.chaos.surroundings import Topology

_T = TypeVar("_T")

Lane: TypeAlias = str
"""Faults of one lane come one after the other, those of two lanes at any time: `sidecar` and `servers`."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        kind: what happens.
        pause: seconds of peace before it.
        hold: seconds that it lasts, where it lasts.
        draw: from 0 to 1; which of the things that it can hit.
        patient: whether the next fault of the lane waits until the sidecar is ready again.
    """

    kind: str
    pause: float
    hold: float
    draw: float
    patient: bool


def drawn(things: Sequence[_T], draw: float) -> _T:
    """The thing that a number from 0 to 1 stands for."""
    return things[min(int(draw * len(things)), len(things) - 1)]


@dataclass(frozen=True, slots=True)
class _Kind:
    """How often, how long, and where a kind of fault is possible."""

    lane: Lane
    weight: int
    longest: float
    needs: str = ""


KINDS: dict[str, _Kind] = {
    "sidecar killed": _Kind("sidecar", 5, 0),
    "sidecar restarted": _Kind("sidecar", 3, 0),
    "sidecar paused": _Kind("sidecar", 3, 8),
    "configuration reloaded": _Kind("sidecar", 3, 0),
    "sidecar's clock stepped": _Kind("sidecar", 2, 0),
    "consumer deleted": _Kind("sidecar", 2, 0),
    "consumer edited": _Kind("sidecar", 2, 0),
    "connections reset": _Kind("servers", 3, 0),
    "network cut": _Kind("servers", 3, 8),
    "network held": _Kind("servers", 2, 8),
    "network slow": _Kind("servers", 2, 5),
    "witness cut": _Kind("servers", 3, 5),
    "witness held": _Kind("servers", 2, 5),
    "server killed": _Kind("servers", 4, 4),
    "server restarted": _Kind("servers", 2, 1),
    "lame duck": _Kind("servers", 1, 1),
    "all servers killed": _Kind("servers", 2, 2, "cluster"),
    "creation times changed": _Kind("servers", 1, 0),
    "stream offline": _Kind("servers", 2, 8, "cluster"),
    "disk full": _Kind("servers", 2, 8, "single"),
    "inbox refused": _Kind("servers", 2, 8),
    "power cut": _Kind("servers", 3, 3, "single"),
    "bits flipped": _Kind("servers", 2, 0, "single"),
    "peers removed": _Kind("servers", 2, 2, "cluster"),
    "stream leader steps down": _Kind("servers", 5, 0, "cluster"),
    "meta leader steps down": _Kind("servers", 2, 0, "cluster"),
    "target full": _Kind("servers", 2, 4),
    "messages deleted": _Kind("servers", 3, 0),
    "source purged": _Kind("servers", 1, 0),
}
"""Every kind of fault."""

_LONGEST_PAUSE = {"sidecar": 9.0, "servers": 5.0}
"""Seconds. A sidecar needs a while to start: without peace between the faults it would hardly do any work."""


def faults(seed: object, lane: Lane, topology: Topology) -> Iterator[Fault]:
    """The faults of a lane, without end; the same for the same arguments.

    Args:
        seed: the run's.
        lane: `sidecar` or `servers`.
        topology: some need a cluster.
    """
    chance = random.Random(f"{seed}/{lane}")
    kinds = {name: kind for name, kind in KINDS.items() if kind.lane == lane and kind.needs in ("", topology)}
    names, weights = list(kinds), [kind.weight for kind in kinds.values()]
    # Each once in an order of its own, so that a short run has met many; then at random.
    order = chance.sample(names, len(names))
    while True:
        name = order.pop() if order else chance.choices(names, weights)[0]
        yield Fault(
            name,
            pause=round(chance.uniform(0.3, _LONGEST_PAUSE[lane]), 2),
            hold=round(chance.uniform(0.1, 1) * kinds[name].longest, 2),
            draw=chance.random(),
            patient=chance.random() < 0.6,
        )
