"""Against the number of distinct subjects: 1 to 1,000,000, 128-byte messages, live and catching up."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.figures import Ratio, Report
from benchmarks.load import chunks
from benchmarks.republish_arm import Arm, copier, measure, native, sidecar
from benchmarks.rounds import HEADER, turns

_SUBJECTS = (1, 1_000, 100_000, 1_000_000)
_MESSAGES = 400_000  # at least; each subject comes once
_ROUNDS = 3
_MANY = 100_000
_LEAST, _LEAST_MANY = 0.9, 1.1  # times native, below _MANY subjects and from there on
_SLOW = 0.2  # of the messages, for nats-py; no fewer than there are subjects


def run(version: str, *, quick: bool, say: Callable[[str], None]) -> Report:
    """Measure. The arms take turns, round after round."""
    rounds = 2 if quick else _ROUNDS
    wanted = _SUBJECTS[:-1] if quick else _SUBJECTS
    found = {subjects: _arms(subjects) for subjects in wanted}
    for subjects, arms in found.items():
        # Made before any clock runs: making subjects must not be what is measured.
        made = list(chunks(max(_MESSAGES, subjects), subjects))
        for arm in turns("subjects", rounds, arms, say):
            pieces = made[: int(len(made) * arm.share / (4 if quick else 1))]
            measure(arm, sum(piece.count(b"PUB ") for piece in pieces), pieces, version=version)
    rows, ratios, points = [], [], []
    for subjects, arms in found.items():
        server, most, _, stored = arms
        rows += [(*arm.row(), arm.peak_cell) for arm in arms]
        points += [arm.point(arm.name.partition(": ")[2], subjects) for arm in arms]
        target = _LEAST_MANY if subjects >= _MANY else _LEAST
        ratios += [
            Ratio(f"{subjects:,} subjects, at most once over native", most.rate / server.rate, target),
            Ratio(f"{subjects:,} subjects, catching up over native live", stored.rate / server.rate, target),
        ]
    return Report((*HEADER, "peak MB"), rows, ratios, points=points)


def _arms(subjects: int) -> tuple[Arm, ...]:
    what = f"{subjects:,} subjects"
    return (
        native(f"{what}: native"),
        sidecar(f"{what}: nats-bridge"),
        copier(f"{what}: nats-py, ordered consumer", "ordered", _SLOW),
        sidecar(f"{what}: nats-bridge, catching up", stored_first=True),
    )
