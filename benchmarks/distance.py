"""Copying against distance: 0 to 200 ms to the target or to the source and back, next to a leaf node as far away.

The sidecar stands next to one of the two servers and reaches the other one through a wire with a delay
(`far_wire`); natively, the target's server is a leaf node whose connection goes through such a wire.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from benchmarks.copy_arm import HEADER, Arm, measure
from benchmarks.copy_scene import native_copy, own_copy, scene
from benchmarks.figures import Ratio, Report
from benchmarks.load import FILLING, publish_all
from benchmarks.rounds import turns

ROUND_TRIPS = (0, 20, 100, 200)
"""Milliseconds."""

_MESSAGES = 1_000_000  # the window reaches its width in two seconds at 200 ms; what follows is the rate
_ROUNDS = 3
_LEAST = 0.8  # of the rate without distance

_Far = Literal["source", "target"]
_SERIES: dict[str, _Far] = {
    "native": "target",
    "nats-bridge, target far": "target",
    "nats-bridge, source far": "source",
}


def run(version: str, *, quick: bool, say: Callable[[str], None]) -> Report:
    """Measure. The arms take turns, round after round."""
    messages, rounds = (_MESSAGES // 4, 1) if quick else (_MESSAGES, _ROUNDS)
    found = {
        (name, milliseconds): Arm(f"{milliseconds} ms: {name}", native_copy if name == "native" else own_copy)
        for milliseconds in ROUND_TRIPS
        for name in _SERIES
    }
    places = {arm.name: place for place, arm in found.items()}
    for arm in turns("distance", rounds, list(found.values()), say):
        name, milliseconds = places[arm.name]
        with scene(version, "file", far=_SERIES[name], round_trip=milliseconds / 1000) as place:
            publish_all(place.source.port, messages, window=FILLING)
            measure(arm, place, messages)
        # Each start takes several round trips, the same for a million messages as for one.
        arm.rates[-1] = arm.steady.pop()
    ratios = []
    for milliseconds in ROUND_TRIPS:
        native, *ours = (found[name, milliseconds] for name in _SERIES)
        ratios += [Ratio(f"{own.name}, over native", own.rate / native.rate) for own in ours]
    for name in _SERIES:
        near = found[name, ROUND_TRIPS[0]].rate
        far = found[name, ROUND_TRIPS[-1]]
        target = None if name == "native" else _LEAST
        ratios.append(Ratio(f"{far.name}, over {ROUND_TRIPS[0]} ms", far.rate / near, target))
    note = (
        f"{messages:,} stored messages, file streams, 2 servers; from the first copy to the last. All distances, 0 ms"
        " too, go through the wire."
    )
    points = [arm.point(name, milliseconds) for (name, milliseconds), arm in found.items()]
    return Report(HEADER, [arm.row() for arm in found.values()], ratios, (note,), points)
