"""Catching up: all messages are stored before a copy begins; native sources and `nats-bridge run` in turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.copy_arm import HEADER, Arm, measure, pair
from benchmarks.copy_scene import scene, transforms_sources
from benchmarks.figures import Ratio, Report, median_of
from benchmarks.load import FILLING, TRACED, publish_all
from benchmarks.rounds import turns

OLDER = ("2.10.27", "2.9.10")
"""Measured next to the newest: a version whose file streams read filtered subjects slowly, and the oldest one."""

_MESSAGES = 200_000
_ROUNDS, _OLDER_ROUNDS, _QUICK_ROUNDS = 5, 3, 2
_TARGETS = {"memory": 0.9, "file": 3.0}  # times native


@dataclass(frozen=True, slots=True)
class _Case:
    """What is copied where.

    Attributes:
        version: of the server.
        storage: of both streams.
        target: what ours over native should reach.
        headers: whether the messages have headers.
        across: whether the target is on another server.
        older: whether it is here for comparison only, with fewer rounds.
    """

    version: str
    storage: str
    target: float | None = None
    headers: bool = False
    across: bool = False
    older: bool = False

    @property
    def name(self) -> str:
        return f"{self.version}, {self.storage}{', headers' * self.headers}{', across servers' * self.across}"


def run(version: str, *, quick: bool, say: Callable[[str], None]) -> Report:
    """Measure. In each place the arms take turns, round after round, with the same stored messages."""
    measured = [(case, *_compare(case, quick=quick, say=say)) for case in _cases(version)]
    rows = [arm.row() for _, native, own in measured for arm in (native, own)]
    ratios = []
    for case, native, own in measured:
        what = f"catching up, nats-bridge over native sources, {case.name}"
        ratios += [
            Ratio(what, own.rate / native.rate, case.target),
            Ratio(f"{what}, first to last", median_of(own.steady) / median_of(native.steady)),
        ]
    launch = median_of([seconds for _, _, own in measured for seconds in own.launch])
    note = (
        f"{_MESSAGES:,} messages, counted to the last copy from STREAM.CREATE (native) or from the log's copying.begins"
        f" (nats-bridge), which came {launch:.1f} s after the launch of the process. First to last leaves out what"
        " comes before the first copy, where native sources wait a moment."
    )
    older = "Before 2.10 servers cannot transform what they copy: native copies plainly there, nats-bridge transforms."
    return Report(HEADER, rows, ratios, (note, older))


def _cases(version: str) -> list[_Case]:
    cases = [_Case(version, storage, target) for storage, target in _TARGETS.items()]
    cases += [_Case(version, "memory", headers=True), _Case(version, "memory", across=True)]
    for older in OLDER:
        if older != version:
            # Only where native does the same work is there a target.
            targets = _TARGETS if transforms_sources(older) else dict.fromkeys(_TARGETS)
            cases += [_Case(older, storage, target, older=True) for storage, target in targets.items()]
    return cases


def _compare(case: _Case, *, quick: bool, say: Callable[[str], None]) -> tuple[Arm, Arm]:
    arms = pair(case.name)
    rounds = _QUICK_ROUNDS if quick else (_OLDER_ROUNDS if case.older else _ROUNDS)
    with scene(case.version, case.storage, across=case.across) as place:
        publish_all(place.source.port, _MESSAGES, block=TRACED if case.headers else b"", window=FILLING)
        for arm in turns("catch-up", rounds, arms, say):
            measure(arm, place, _MESSAGES)
    return arms
