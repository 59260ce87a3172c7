"""Copying between streams with three replicas, on a cluster of three servers; with a transform, on two versions.

In addition to the servers themselves and nats-bridge: Choria's stream-replicator, where it is on PATH.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable

from benchmarks.copy_arm import HEADER, Arm, measure, pair
from benchmarks.copy_scene import cluster_scene, program_copy
from benchmarks.figures import Ratio, Report, median_of
from benchmarks.load import FILLING, publish_all
from benchmarks.processes import running_replicator
from benchmarks.rounds import turns

OLDER = ("2.10.27",)
"""Measured next to the newest: copies with a transform are slow there."""

_MESSAGES = 100_000
_ROUNDS = 3
_LEAST = 1.5  # times native
_SINGLE = 0.1  # of the messages, for what stores one at a time


def run(version: str, *, quick: bool, say: Callable[[str], None]) -> Report:
    """Measure. The arms take turns, round after round, with the same stored messages."""
    messages, rounds = (_MESSAGES // 5, 1) if quick else (_MESSAGES, _ROUNDS)
    found = {each: (*pair(each), *_peers(each)) for each in dict.fromkeys((*OLDER, version))}
    for each, arms in found.items():
        for arm in turns("replicated", rounds, arms, say):
            with cluster_scene(each, "file") as place:
                count = int(messages * arm.share)
                publish_all(place.source.port, count, window=FILLING)
                measure(arm, place, count)
    ratios, points = [], []
    for each, (native, own, *peers) in found.items():
        ratios += [
            Ratio(f"three replicas, nats-bridge over native, {each}", own.rate / native.rate, _LEAST),
            Ratio(
                f"three replicas, nats-bridge over native, {each}, first to last",
                median_of(own.steady) / median_of(native.steady),
            ),
        ]
        ratios += [Ratio(f"three replicas, nats-bridge over {peer.name}", own.rate / peer.rate) for peer in peers]
        points += [arm.point(arm.name.partition(": ")[2], _number(each)) for arm in (native, own, *peers)]
    note = (
        f"{messages:,} stored messages ({_SINGLE:.0%} of them for stream-replicator, where it is on PATH), file"
        " streams, three servers on one machine; from the beginning of the copy to the last one."
    )
    rows = [arm.row() for arms in found.values() for arm in arms]
    return Report(HEADER, rows, ratios, (note,), points)


def _peers(version: str) -> tuple[Arm, ...]:
    replicator = shutil.which("stream-replicator")
    if replicator is None:
        return ()
    return (
        Arm(
            f"{version}: stream-replicator",
            lambda place: program_copy(place, lambda url: running_replicator(url, replicator)),
            share=_SINGLE,
        ),
    )


def _number(version: str) -> int:
    """A version as a place on an axis: 21027 for 2.10.27."""
    major, minor, patch = map(int, version.split("."))
    return major * 10_000 + minor * 100 + patch
