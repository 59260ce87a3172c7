"""Memory and CPU of a program and its children except servers, as Spark is a JVM with workers; and jobs as commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.errors import BenchmarkError

_EVERY = 0.25  # seconds
_SERVER = "nats-server"  # started by the same process, and holds what other arms have stored


class Peak:
    """The most that was held at once, in bytes, and the CPU seconds; pages that processes share count once for each."""

    def __init__(self) -> None:
        self.held = 0
        self._before: dict[int, int] | None = None  # clock ticks by process
        self._ticks: dict[int, int] = {}

    @property
    def cpu(self) -> float:
        """CPU seconds since the first look, of processes that have ended, up to the last look at them."""
        before = self._before or {}
        ticks = sum(count - before.get(pid, 0) for pid, count in self._ticks.items())
        return ticks / os.sysconf("SC_CLK_TCK")

    def look(self, root: int) -> None:
        """Look at a process and its descendants."""
        processes = _tree(root)
        self._ticks |= {pid: ticks for pid, (ticks, _) in processes.items()}
        if self._before is None:
            self._before = dict(self._ticks)
        held = sum(pages for _, pages in processes.values()) * os.sysconf("SC_PAGE_SIZE")
        self.held = max(self.held, held)


@contextmanager
def peak_of_tree() -> Iterator[Peak]:
    """Watch this process and its descendants. Needs Linux's /proc; elsewhere the figures stay 0."""
    peak, over = Peak(), threading.Event()
    peak.look(os.getpid())

    def watch() -> None:
        while not over.wait(_EVERY):
            peak.look(os.getpid())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        over.set()
        watcher.join()
        peak.look(os.getpid())


def _tree(root: int) -> dict[int, tuple[int, int]]:
    """Clock ticks and pages of a process and its descendants."""
    parents: dict[int, int] = {}
    found: dict[int, tuple[int, int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue  # it has just ended
        if name == _SERVER:
            continue
        fields = rest.split()
        parents[int(entry.name)] = int(fields[1])
        found[int(entry.name)] = int(fields[11]) + int(fields[12]), int(fields[21])
    return {pid: figures for pid, figures in found.items() if _descends(pid, root, parents)}


def _descends(pid: int, root: int, parents: dict[int, int]) -> bool:
    while pid != root:
        if pid not in parents or pid == parents[pid]:
            return False
        pid = parents[pid]
    return True


class JobCost(NamedTuple):
    """What a job took: seconds without the start of Spark, the peak memory in bytes, and CPU seconds with the start."""

    seconds: float
    peak_bytes: int
    cpu: float


def run_job(folder: Path, cores: int, *words: str, exits: tuple[int, ...] = (0,)) -> JobCost:
    """Run `nats-bridge WORD…` on so many cores, in a process of its own, as a user does.

    Args:
        folder: where it runs.
        cores: of this machine, for Spark.
        words: the command, without `--json` and, except for a backfill, `--spark spark.master`.
        exits: exit codes that are good.

    Raises:
        BenchmarkError: it failed.
    """
    command = [sys.executable, "-m", "nats_bridge", *words, "--json"]
    command += [] if words[0] == "backfill" else ["--spark", f"spark.master=local[{cores}]"]
    with peak_of_tree() as peak:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode not in exits:
        raise BenchmarkError(f"{words[0]}: exit {done.returncode}: {done.stderr.strip()[-500:]}")
    reported: dict[str, Any] = json.loads(done.stdout)
    parts = reported.get("sources", [reported])  # a rule's sources are copied one after the other
    return JobCost(sum(float(part["seconds"]) for part in parts), peak.held, peak.cpu)
