"""Catching up across two servers: native sources, `nats-bridge run` as a client, and native sources through it.

The target has one replica or three; the way to it is none, or 100 ms there and back, for all arms alike.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from benchmarks.catch_up import OLDER
from benchmarks.copy_arm import HEADER, Arm, measure, pair
from benchmarks.copy_scene import scene, through_copy
from benchmarks.figures import Ratio, Report, median_of
from benchmarks.load import FILLING, publish_all
from benchmarks.rounds import turns

_MESSAGES = 200_000
_ROUNDS, _QUICK_ROUNDS = 3, 2
_TARGET = 0.9  # times native
_STORAGES, _REPLICAS, _ROUND_TRIPS = ("memory", "file"), (1, 3), (0, 100)  # milliseconds


def run(version: str, *, quick: bool, say: Callable[[str], None]) -> Report:
    """Measure. In each place the arms take turns, round after round, with the same stored messages."""
    rows: list[tuple[str, ...]] = []
    ratios: list[Ratio] = []
    places = product(dict.fromkeys((version, *OLDER)), _STORAGES, _REPLICAS, _ROUND_TRIPS)
    for each, storage, replicas, milliseconds in places:
        where = f"{each}, {storage}, R{replicas}, {milliseconds} ms"
        native, client, through = arms = (*pair(where), Arm(f"{where}: native, through nats-bridge", through_copy))
        with scene(
            each,
            storage,
            across=True,
            far="target" if milliseconds else "",
            round_trip=milliseconds / 1000,
            replicas=replicas,
        ) as place:
            publish_all(place.source.port, _MESSAGES, window=FILLING)
            for arm in turns("through-server", _QUICK_ROUNDS if quick else _ROUNDS, arms, say):
                measure(arm, place, _MESSAGES)
        rows += [arm.row() for arm in arms]
        steady = median_of(through.steady)
        ratios += [
            Ratio(f"through the sidecar over native, {where}", steady / median_of(native.steady), _TARGET),
            Ratio(f"through the sidecar over a client, {where}", steady / median_of(client.steady)),
        ]
    note = f"{_MESSAGES:,} messages across two servers; ratios are of the rates from the first to the last message."
    return Report(HEADER, rows, ratios, (note,))
