"""Memory of a program and all its children except servers: Spark is a JVM with Python workers; and jobs as commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.errors import BenchmarkError

_EVERY = 0.25  # seconds
_SERVER = "nats-server"  # started by the same process, and holds what other arms have stored


class Peak:
    """The most that was held at once, in bytes; pages that processes share count once for each."""

    def __init__(self) -> None:
        self.held = 0


@contextmanager
def peak_of_tree() -> Iterator[Peak]:
    """Watch this process and its descendants. Needs Linux's /proc; elsewhere the peak stays 0."""
    peak, over = Peak(), threading.Event()

    def watch() -> None:
        while not over.wait(_EVERY):
            peak.held = max(peak.held, _held_by(os.getpid()))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        over.set()
        watcher.join()


def _held_by(root: int) -> int:
    parents: dict[int, int] = {}
    pages: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue  # it has just ended
        if name == _SERVER:
            continue
        fields = rest.split()
        parents[int(entry.name)], pages[int(entry.name)] = int(fields[1]), int(fields[21])
    return sum(held for pid, held in pages.items() if _descends(pid, root, parents)) * os.sysconf("SC_PAGE_SIZE")


def _descends(pid: int, root: int, parents: dict[int, int]) -> bool:
    while pid != root:
        if pid not in parents or pid == parents[pid]:
            return False
        pid = parents[pid]
    return True


def run_job(folder: Path, cores: int, *words: str, exits: tuple[int, ...] = (0,)) -> tuple[float, int, dict[str, Any]]:
    """Run `nats-bridge WORD…` on so many cores, in a process of its own, as a user does.

    Args:
        folder: where it runs.
        cores: of this machine, for Spark.
        words: the command, without `--json` and `--spark spark.master`.
        exits: exit codes that are good.

    Returns:
        The seconds of the job itself, without the start of Spark; the peak memory in bytes; what it printed.

    Raises:
        BenchmarkError: it failed.
    """
    command = [sys.executable, "-m", "nats_bridge", *words, "--json", "--spark", f"spark.master=local[{cores}]"]
    with peak_of_tree() as peak:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode not in exits:
        raise BenchmarkError(f"{words[0]}: exit {done.returncode}: {done.stderr.strip()[-500:]}")
    reported: dict[str, Any] = json.loads(done.stdout)
    parts = reported.get("sources", [reported])  # a rule's sources are copied one after the other
    return sum(float(part["seconds"]) for part in parts), peak.held, reported
