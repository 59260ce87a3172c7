"""The compiled loop next to Python's: 128-byte messages, live, on 1,000 to 1,000,000 subjects, and catching up."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.errors import BenchmarkError
from benchmarks.figures import Ratio, Report
from benchmarks.load import chunks
from benchmarks.processes import COMPILED
from benchmarks.republish_arm import Arm, measure, native, sidecar
from benchmarks.rounds import HEADER, turns

_SUBJECTS = (1_000, 100_000, 1_000_000)
_MESSAGES = 400_000  # at least; each subject comes once
_ROUNDS = 3
_HALF = 2.0  # of Python's CPU, at 1,000 subjects


def run(version: str, *, quick: bool, say: Callable[[str], None]) -> Report:
    """Measure. The arms take turns, round after round.

    Raises:
        BenchmarkError: the module was not built.
    """
    if not list(COMPILED.glob("*.so")):
        raise BenchmarkError("no compiled loop: make compiled builds it")
    rows, ratios = [], []
    for subjects in _SUBJECTS[:-1] if quick else _SUBJECTS:
        made = list(chunks(max(_MESSAGES, subjects), subjects))
        server, python, compiled, behind, ahead = arms = _arms(f"{subjects:,} subjects")
        for arm in turns("compiled", 2 if quick else _ROUNDS, arms, say):
            measure(arm, sum(piece.count(b"PUB ") for piece in made), made, version=version)
        rows += [arm.row() for arm in arms]
        what, target = f"{subjects:,} subjects", _HALF if subjects == _SUBJECTS[0] else None
        ratios += [
            Ratio(f"{what}, CPU of Python over compiled", python.used / compiled.used, target),
            Ratio(f"{what}, live, Python over native", python.rate / server.rate),
            Ratio(f"{what}, live, compiled over native", compiled.rate / server.rate),
            Ratio(f"{what}, catching up, compiled over Python", ahead.rate / behind.rate),
        ]
    return Report(HEADER, rows, ratios)


def _arms(what: str) -> tuple[Arm, ...]:
    return (
        native(f"{what}: native"),
        sidecar(f"{what}: Python"),
        sidecar(f"{what}: compiled", compiled=True),
        sidecar(f"{what}: Python, catching up", stored_first=True),
        sidecar(f"{what}: compiled, catching up", stored_first=True, compiled=True),
    )
