"""Against the size of messages: 16 bytes to 64 KiB on 1,000 subjects, live and catching up."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.figures import Ratio, Report
from benchmarks.load import PAYLOAD, chunks
from benchmarks.republish_arm import Arm, copier, measure, native, sidecar
from benchmarks.rounds import HEADER, turns

SIZES = {16: 500_000, 128: 400_000, 1_024: 300_000, 8_192: 100_000, 65_536: 20_000}
"""Bytes of the payload, and how many messages take a few seconds."""

_ROUNDS = 3
_TARGETS = {PAYLOAD: 1.25}
_LEAST = 0.9  # times native, at any other size
_SLOW = 0.2  # of the messages, for nats-py


def run(version: str, *, quick: bool, say: Callable[[str], None]) -> Report:
    """Measure. The arms take turns at each size, round after round."""
    rounds = 2 if quick else _ROUNDS
    found = {size: _arms(size) for size in SIZES}
    for size, arms in found.items():
        for arm in turns("sizes", rounds, arms, say):
            count = int(SIZES[size] * arm.share / (5 if quick else 1))
            measure(arm, count, chunks(count, size=size), version=version)
    rows, ratios, points = [], [], []
    for size, arms in found.items():
        server, most, least, ordered, _ = arms
        rows += [(*arm.row(), f"{arm.rate * size / 1e6:,.0f}") for arm in arms]
        points += [arm.point(arm.name.partition(": ")[2], size) for arm in arms]
        ratios += [
            Ratio(f"{size:,} bytes, at most once over native", most.rate / server.rate, _TARGETS.get(size, _LEAST)),
            Ratio(f"{size:,} bytes, at least once over native", least.rate / server.rate),
            Ratio(f"{size:,} bytes, at most once over nats-py with an ordered consumer", most.rate / ordered.rate),
        ]
    return Report((*HEADER, "MB/s"), rows, ratios, points=points)


def _arms(size: int) -> tuple[Arm, ...]:
    what = f"{size:,} bytes"
    return (
        native(f"{what}: native"),
        sidecar(f"{what}: nats-bridge"),
        sidecar(f"{what}: nats-bridge, at least once", delivery="at_least_once"),
        copier(f"{what}: nats-py, ordered consumer", "ordered", _SLOW),
        sidecar(f"{what}: nats-bridge, catching up", stored_first=True),
    )
