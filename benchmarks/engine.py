"""The transform engine on one core: subjects per second, all distinct, and a thousand repeated."""

from __future__ import annotations

import time

from benchmarks.figures import Ratio, median_of, table
from transforms import compile_transform

__all__ = ["run"]

_TRANSFORMS = (
    ("one.*.*", "uno.$2.$1"),
    ("one.>", "uno.>"),
    ("one.*.*", "p.{{partition(10,1,2)}}.$1"),
    ("one.*.*", "p.{{split(1,-)}}.$2"),
    ("one.*.*", "p.{{sliceFromLeft(1,3)}}.{{left(2,2)}}"),
)
_ROUNDS = 5


def run(*, quick: bool) -> tuple[str, list[Ratio]]:
    """Measure; a table, and the ratios."""
    count = 100_000 if quick else 1_000_000
    distinct = [b"one.ab-%d.%d" % (number // 1000, number % 1000) for number in range(count)]
    repeated = distinct[:1000] * (count // 1000)
    rows = []
    headline = 0.0
    for source, destination in _TRANSFORMS:
        apply = compile_transform(source.encode(), destination.encode()).apply
        rates = [[_rate(apply, subjects) for _ in range(_ROUNDS)] for subjects in (distinct, repeated)]
        cold, warm = map(median_of, rates)
        headline = headline or cold
        rows.append((f"`{source}` to `{destination}`", f"{cold:,.0f}", f"{warm:,.0f}"))
    ratio = Ratio("million distinct subjects per second, one.*.* to uno.$2.$1", headline / 1e6, 1.0, unit="M/s")
    return table(("transform", "distinct subjects/s", "repeated subjects/s"), rows), [ratio]


def _rate(apply: object, subjects: list[bytes]) -> float:
    began = time.perf_counter()
    for _ in map(apply, subjects):  # type: ignore[call-overload]
        pass
    return len(subjects) / (time.perf_counter() - began)
