"""Memory of the sidecar while it catches up: 200,000 messages of a thousand subjects, and a million subjects."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.copy_scene import own_copy, scene
from benchmarks.figures import Ratio, Report
from benchmarks.load import FILLING, SUBJECTS, publish_all
from benchmarks.processes import Memory, memory_of
from benchmarks.stream_growth import watch_growth

_MESSAGES = 200_000
_MOST_SUBJECTS = 1_000_000


def run(version: str, *, quick: bool, say: Callable[[str], None]) -> Report:
    """Measure, with a tenth of the million when quick."""
    say("copy-memory: idle")
    idle = _measure(version, 0, SUBJECTS)
    rows = [("idle, an empty source", *idle.cells(idle))]
    ratios = []
    most = _MOST_SUBJECTS // 10 if quick else _MOST_SUBJECTS
    for messages, subjects in ((_MESSAGES, SUBJECTS), (most, most)):
        what = f"{messages:,} messages, {subjects:,} subjects"
        say(f"copy-memory: {what}")
        memory = _measure(version, messages, subjects)
        rows.append((f"caught up, {what}", *memory.cells(idle)))
        ratios.append(
            Ratio(f"caught up, {what}, peak over idle", (memory.peak - idle.now) / 1e6, at_most=True, unit="MB")
        )
    return Report(("sidecar", "MB resident", "over idle", "peak"), rows, ratios)


def _measure(version: str, messages: int, subjects: int) -> Memory:
    with scene(version, "memory") as place:
        publish_all(place.source.port, messages, subjects, window=FILLING)
        with own_copy(place, until="sidecar.ready") as copying:
            if messages:
                watch_growth(place.target.port, copying.stream, messages, subjects=subjects)
            assert copying.program is not None
            return memory_of(copying.program.pid)
