"""Compared with peers: the server itself, nats-bridge, and programs with nats.go and nats-py.

Republishing live, and copying a stream: 200,000 stored messages, and live. Programs that store one message at
a time get fewer, as they take a hundred times as long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from benchmarks.copy_arm import Arm as CopyArm
from benchmarks.copy_scene import Copying, Scene, native_copy, own_copy, program_copy, scene
from benchmarks.figures import Ratio, Report, median_of
from benchmarks.load import FILLING, chunks, publish_all
from benchmarks.processes import Program, cpu_seconds, memory_of, running_copier, running_go_copier
from benchmarks.republish_arm import Arm, copier, go_copier, measure, native, sidecar
from benchmarks.stream_growth import Growth, watch_growth

__all__ = ["run"]

_LIVE, _STORED = 400_000, 200_000  # messages
_SLOW = 0.2  # of the messages, for nats-py
_SINGLE = 0.05  # of the messages, for what stores one at a time
_ROUNDS = 3
_SHARES = {"pipelined": 1.0, "one at a time": _SINGLE}

_Running = Callable[[str, str], AbstractContextManager[Program]]

_HEADER = ("median of the rounds", "messages/s", "lowest", "highest", "µs CPU per message", "of the server", "peak MB")


def run(version: str, *, quick: bool, say: Callable[[str], None]) -> Report:
    """Measure. The arms take turns, round after round."""
    rounds, part = (1, 0.2) if quick else (_ROUNDS, 1.0)
    republishing = (
        native("native"),
        sidecar("nats-bridge"),
        sidecar("nats-bridge, at least once", "delivery: at_least_once"),
        go_copier("nats.go, ordered consumer", "ordered"),
        copier("nats-py, ordered consumer", "ordered", _SLOW),
    )
    stored, live = _copy_arms(), _copy_arms()
    for number in range(1, rounds + 1):
        say(f"peers: round {number} of {rounds}")
        for each in republishing if number % 2 else republishing[::-1]:
            count = int(_LIVE * part * each.share)
            measure(each, count, chunks(count), version=version)
        for arm, share in stored if number % 2 else stored[::-1]:
            _measure(arm, version, int(_STORED * part * share), is_stored=True)
        for arm, share in live if number % 2 else live[::-1]:
            _measure(arm, version, int(_STORED * part * share), is_stored=False)
    ways: dict[str, Sequence[Arm | CopyArm]] = {
        "republishing live": republishing,
        "copying what is stored": [arm for arm, _ in stored],
        "copying live": [arm for arm, _ in live],
    }
    rows, ratios, points = [], [], []
    for at, (way, arms) in enumerate(ways.items()):
        server, own = arms[0], arms[1]
        rows += [(f"{way}: {arm.name}", *_row(arm)) for arm in arms]
        points += [arm.point(arm.name, at) for arm in arms]
        ratios.append(Ratio(f"{way}: nats-bridge over native", own.rate / server.rate))
        ratios += [Ratio(f"{way}: nats-bridge over {arm.name}", own.rate / arm.rate) for arm in arms[2:]]
    return Report(_HEADER, rows, ratios, points=points)


def _row(arm: Arm | CopyArm) -> tuple[str, ...]:
    rates = (f"{rate:,.0f}" for rate in (arm.rate, min(arm.rates), max(arm.rates)))
    cpu = (f"{median_of(used):.1f}" if used else "-" for used in (arm.cpu, arm.server_cpu))
    return *rates, *cpu, f"{max(arm.peak) / 1e6:.0f}" if arm.peak else "-"


def _copy_arms() -> tuple[tuple[CopyArm, float], ...]:
    others = [
        (CopyArm(f"{name}, {way}", _program(running, way)), share * slow)
        for name, running, slow in (("nats.go", running_go_copier, 1.0), ("nats-py", running_copier, _SLOW))
        for way, share in _SHARES.items()
    ]
    return (CopyArm("native", native_copy), 1.0), (CopyArm("nats-bridge", own_copy), 1.0), *others


def _program(running: _Running, way: str) -> Callable[[Scene], AbstractContextManager[Copying]]:
    return lambda place: program_copy(place, lambda url: running(url, way.replace(" ", "-")))


def _measure(arm: CopyArm, version: str, messages: int, *, is_stored: bool) -> None:
    with scene(version, "memory") as place:
        if is_stored:
            publish_all(place.source.port, messages, window=FILLING)
        with arm.copy(place) as copying:
            before = 0 if is_stored else _first_has_come(place, copying)
            program = copying.program
            used, server_used = cpu_seconds(program.pid) if program else 0.0, place.cpu_seconds()
            began = copying.began if is_stored else time.time()
            if not is_stored:
                publish_all(place.source.port, messages, window=FILLING)
            growth = watch_growth(place.target.port, copying.stream, messages + before)
            arm.rates.append(messages / (growth.last - began))
            arm.server_cpu.append((place.cpu_seconds() - server_used) / messages * 1e6)
            if program:
                arm.cpu.append((cpu_seconds(program.pid) - used) / messages * 1e6)
                arm.peak.append(memory_of(program.pid).peak)


def _first_has_come(place: Scene, copying: Copying) -> int:
    """Wait until a message has arrived: everything that the first one sets up exists then."""
    publish_all(place.source.port, 1)
    growth: Growth = watch_growth(place.target.port, copying.stream, 1)
    return growth.messages
