"""Compared with peers: the server itself, nats-bridge, and programs with nats.go and nats-py.

Republishing live, and copying a stream: 200,000 stored messages, and live. Programs that store one message at
a time get fewer, as they take a hundred times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from benchmarks.copy_arm import Arm as CopyArm
from benchmarks.copy_arm import measure as measure_copying
from benchmarks.copy_scene import Copying, Scene, native_copy, own_copy, program_copy, scene
from benchmarks.figures import Ratio, Report
from benchmarks.load import FILLING, chunks, publish_all
from benchmarks.processes import Program, running_copier, running_go_copier
from benchmarks.republish_arm import Arm, copier, go_copier, measure, native, sidecar
from benchmarks.rounds import HEADER, turns

_LIVE, _STORED = 400_000, 200_000  # messages
_SLOW = 0.2  # of the messages, for nats-py
_SINGLE = 0.05  # of the messages, for what stores one at a time
_ROUNDS = 3
_SHARES = {"pipelined": 1.0, "one at a time": _SINGLE}

_Running = Callable[[str, str], AbstractContextManager[Program]]


def run(version: str, *, quick: bool, say: Callable[[str], None]) -> Report:
    """Measure. The arms take turns, round after round."""
    rounds, part = (1, 0.2) if quick else (_ROUNDS, 1.0)
    republishing = (
        native("native"),
        sidecar("nats-bridge"),
        sidecar("nats-bridge, at least once", delivery="at_least_once"),
        go_copier("nats.go, ordered consumer", "ordered"),
        copier("nats-py, ordered consumer", "ordered", _SLOW),
    )
    for each in turns("peers, republishing", rounds, republishing, say):
        count = int(_LIVE * part * each.share)
        measure(each, count, chunks(count), version=version)
    stored, live = _copy_arms(), _copy_arms()
    for copying, is_live in ((stored, False), (live, True)):
        for arm in turns("peers, copying", rounds, copying, say):
            count = int(_STORED * part * arm.share)
            with scene(version, "memory") as place:
                if not is_live:
                    publish_all(place.source.port, count, window=FILLING)
                measure_copying(arm, place, count, live=is_live)
    ways: dict[str, Sequence[Arm | CopyArm]] = {
        "republishing live": republishing,
        "copying what is stored": stored,
        "copying live": live,
    }
    rows, ratios, points = [], [], []
    for at, (way, arms) in enumerate(ways.items()):
        server, own = arms[0], arms[1]
        rows += [(f"{way}: {arm.name}", *arm.rate_cells, *arm.cpu_cells, arm.peak_cell) for arm in arms]
        points += [arm.point(arm.name, at) for arm in arms]
        ratios.append(Ratio(f"{way}: nats-bridge over native", own.rate / server.rate))
        ratios += [Ratio(f"{way}: nats-bridge over {arm.name}", own.rate / arm.rate) for arm in arms[2:]]
    return Report((*HEADER, "peak MB"), rows, ratios, points=points)


def _copy_arms() -> tuple[CopyArm, ...]:
    others = [
        CopyArm(f"{name}, {way}", _program(running, way), share=share * slow)
        for name, running, slow in (("nats.go", running_go_copier, 1.0), ("nats-py", running_copier, _SLOW))
        for way, share in _SHARES.items()
    ]
    return CopyArm("native", native_copy), CopyArm("nats-bridge", own_copy), *others


def _program(running: _Running, way: str) -> Callable[[Scene], AbstractContextManager[Copying]]:
    return lambda place: program_copy(place, lambda url: running(url, way.replace(" ", "-")))
