"""Memory of the sidecar after a million subjects, over an idle one; and after a restart that reads them again."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.errors import BenchmarkError
from benchmarks.figures import Ratio, Report
from benchmarks.load import arrivals, publish_all
from benchmarks.processes import REPUBLISH, Memory, bench_stream, configuration, memory_of, running_bridge

_PROMISED = 1_000_000  # subjects


def run(version: str, *, quick: bool, say: Callable[[str], None]) -> Report:
    """Measure, with a tenth of the subjects when quick."""
    subjects = _PROMISED // 10 if quick else _PROMISED
    with bench_stream(version, native=False) as server:
        config = configuration(server.url, REPUBLISH)
        with running_bridge(config) as sidecar:
            idle = memory_of(sidecar.pid)
            say(f"memory: {subjects:,} subjects, live")
            with arrivals(server.port, "bridge.bench.>", subjects) as subscriber:
                publish_all(server.port, subjects, subjects)
                subscriber.receive()
            live = memory_of(sidecar.pid)
        say(f"memory: {subjects:,} subjects, learnt at the start")
        with running_bridge(config) as sidecar:
            seeded = memory_of(sidecar.pid)
            took = sidecar.ready - sidecar.launched
            known = sidecar.logged("rule.ready")["known_subjects"]
        if known != subjects:
            raise BenchmarkError(f"the restarted sidecar knows {known:,} of {subjects:,} subjects")
    names = "idle, an empty stream", f"after {subjects:,} subjects, live", f"restarted, {subjects:,} subjects learnt"
    rows = [(name, *memory.cells(idle)) for name, memory in zip(names, (idle, live, seeded), strict=True)]
    ratios = [
        _over("live", live, idle, subjects),
        _over("restarted", seeded, idle, subjects),
    ]
    note = f"The restarted sidecar was ready {took:.1f} s after its launch."
    return Report(("sidecar", "MB resident", "over idle", "peak"), rows, ratios, (note,))


def _over(name: str, memory: Memory, idle: Memory, subjects: int) -> Ratio:
    # Promised for a million; fewer prove little about that.
    target = 100.0 if subjects >= _PROMISED else None
    name = f"{subjects:,} subjects, {name}, over idle"
    return Ratio(name, (memory.now - idle.now) / 1e6, target, at_most=True, unit="MB")
