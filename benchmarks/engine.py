"""The transform engine on one core: subjects per second, all distinct, and a thousand repeated."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable

from benchmarks.figures import Ratio, Report, median_of
from nats_transforms import compile_transform

_TRANSFORMS = (
    ("one.*.*", "uno.$2.$1"),
    ("one.>", "uno.>"),
    ("one.*.*", "p.{{partition(10,1,2)}}.$1"),
    ("one.*.*", "p.{{split(1,-)}}.$2"),
    ("one.*.*", "p.{{splitFromLeft(1,2)}}.$2"),
    ("one.*.*", "p.{{sliceFromLeft(1,3)}}.{{left(2,2)}}"),
)
_REPEATED = 1_000


def run(*, quick: bool, say: Callable[[str], None]) -> Report:
    """Measure."""
    rows = []
    headline = 0.0
    for source, destination in _TRANSFORMS:
        name = f"`{source}` → `{destination}`"
        say(f"engine: {name}")
        # The first one is what was promised; it is always measured with a million.
        count = 1_000_000 if not headline else (100_000 if quick else 300_000)
        cold, warm = [], []
        for _ in range(3 if quick else 5):
            cold.append(_rate(source, destination, _distinct(count)))
            warm.append(_rate(source, destination, _distinct(_REPEATED) * (count // _REPEATED)))
        headline = headline or median_of(cold)
        rows.append((name, f"{count:,}", f"{median_of(cold):,.0f}", f"{median_of(warm):,.0f}"))
    ratio = Ratio("distinct subjects through one.*.* → uno.$2.$1", headline / 1e6, 1.0, unit="million/s")
    return Report(("transform", "subjects", "distinct subjects/s", "repeated subjects/s"), rows, [ratio])


def _distinct(count: int) -> list[bytes]:
    # Created for each round: a bytes object remembers its hash, which a cold subject has not.
    return [b"one.ab-%d.%d" % (number // 1000, number % 1000) for number in range(count)]


def _rate(source: str, destination: str, subjects: list[bytes]) -> float:
    """Subjects per second through a transform that has seen none before."""
    apply = compile_transform(source.encode(), destination.encode()).apply
    results: Iterable[bytes | None] = map(apply, subjects)
    began = time.perf_counter()
    last = deque(results, maxlen=1)
    took = time.perf_counter() - began
    assert last[0] is not None
    return len(subjects) / took
