"""Memory: what the sidecar holds after a million subjects, over an idle one; and after it has learnt them anew."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.figures import Ratio, table
from benchmarks.load import arrivals, publish_all
from benchmarks.processes import resident_bytes, running_sidecar
from benchmarks.throughput import bench_stream

__all__ = ["run"]


def run(version: str, *, quick: bool, say: Callable[[str], None]) -> tuple[str, list[Ratio]]:
    """Measure; a table, and what a million subjects cost (or a tenth of that, when quick)."""
    subjects = 100_000 if quick else 1_000_000
    with bench_stream(version, native=False) as server:
        with running_sidecar(server.url) as sidecar:
            say("memory: idle")
            idle = resident_bytes(sidecar.pid)
            say(f"memory: {subjects:,} subjects, live")
            with arrivals(server.port, "bridge.bench.>", subjects) as arrived:
                publish_all(server.port, subjects, subjects)
                arrived.times()
            live = resident_bytes(sidecar.pid)
        say(f"memory: {subjects:,} subjects, learnt at the start")
        with running_sidecar(server.url) as sidecar:
            seeded = resident_bytes(sidecar.pid)
    rows = [
        ("idle, an empty stream", _megabytes(idle), "-"),
        (f"after {subjects:,} subjects, live", _megabytes(live), _megabytes(live - idle)),
        (f"restarted, {subjects:,} subjects known", _megabytes(seeded), _megabytes(seeded - idle)),
    ]
    target = 150.0  # for a million; the same for fewer, where the cost of running at all weighs more
    ratios = [
        Ratio(f"{subjects:,} subjects, live, over idle", (live - idle) / 1e6, target, at_most=True, unit="MB"),
        Ratio(f"{subjects:,} subjects, restarted, over idle", (seeded - idle) / 1e6, target, at_most=True, unit="MB"),
    ]
    return table(("sidecar", "MB resident", "over idle"), rows), ratios


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.0f}"
