"""Live copying: a publisher at full speed into the source, while the server itself or `nats-bridge run` copies."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.copy_arm import HEADER, measure, pair
from benchmarks.copy_scene import scene
from benchmarks.figures import Ratio, Report, median_of
from benchmarks.rounds import turns

_ROUNDS = 5


def run(version: str, *, quick: bool, say: Callable[[str], None]) -> Report:
    """Measure. The arms take turns, round after round, each with servers of its own."""
    messages = 60_000 if quick else 400_000
    rounds = 2 if quick else _ROUNDS
    places = {storage: pair(f"{version}, {storage}") for storage in ("memory", "file")}
    published: list[float] = []
    for storage, arms in places.items():
        for arm in turns("live-copying", rounds, arms, say):
            with scene(version, storage) as place:
                published.append(measure(arm, place, messages, live=True))
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
