"""Live copying: a publisher at full speed into the source, while the server itself or `nats-bridge run` copies."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.copy_arm import HEADER, Arm, pair
from benchmarks.copy_scene import Scene, scene
from benchmarks.figures import Ratio, Report, median_of
from benchmarks.load import FILLING, publish_all
from benchmarks.processes import cpu_seconds
from benchmarks.stream_growth import watch_growth

__all__ = ["run"]

_ROUNDS = 5


def run(version: str, *, quick: bool, say: Callable[[str], None]) -> Report:
    """Measure. The arms take turns, round after round, each with servers of its own."""
    messages = 60_000 if quick else 400_000
    rounds = 2 if quick else _ROUNDS
    places = {storage: pair(f"{version}, {storage}") for storage in ("memory", "file")}
    published: list[float] = []
    for number in range(1, rounds + 1):
        for storage, arms in places.items():
            for arm in arms:
                say(f"live-copying: round {number} of {rounds}, {arm.name}")
                with scene(version, storage) as place:
                    published.append(_measure(arm, place, messages))
    rows = [arm.row() for arms in places.values() for arm in arms]
    ratios = [
        Ratio(f"live copying, nats-bridge over native sources, {version}, {storage}", own.rate / native.rate)
        for storage, (native, own) in places.items()
    ]
    note = (
        f"{messages:,} messages, counted from the first publication to the last copy; the publisher was done after"
        f" {median_of(published):.0%} of that time."
    )
    return Report(HEADER, rows, ratios, (note,))


def _measure(arm: Arm, place: Scene, messages: int) -> float:
    """Add a round to the arm; the part of the time that publishing took."""
    with arm.copy(place) as copying:
        # A message has arrived: everything that the first one sets up exists.
        publish_all(place.source.port, 1)
        watch_growth(place.target.port, copying.stream, 1)
        program = copying.program
        used, server_used = cpu_seconds(program.pid) if program else 0.0, place.cpu_seconds()
        began = time.time()  # the clock of the servers' stamps
        publish_all(place.source.port, messages, window=FILLING)
        published = time.time()
        growth = watch_growth(place.target.port, copying.stream, messages + 1)
        took = growth.last - began
        arm.rates.append(messages / took)
        arm.server_cpu.append((place.cpu_seconds() - server_used) / messages * 1e6)
        if program:
            arm.cpu.append((cpu_seconds(program.pid) - used) / messages * 1e6)
    return (published - began) / took
