"""The jobs as a user starts them: the command in a process of its own, with the times that it reports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.errors import BenchmarkError
from benchmarks.spark.tree_memory import peak_of_tree

__all__ = ["run_job"]


def run_job(folder: Path, cores: int, *words: str, exits: tuple[int, ...] = (0,)) -> tuple[float, int, dict[str, Any]]:
    """Run `nats-bridge WORD…` on so many cores.

    Args:
        folder: where it runs.
        cores: of this machine, for Spark.
        words: the command, without `--json` and `--master`.
        exits: exit codes that are good.

    Returns:
        The seconds of the job itself, without the start of Spark; the peak memory in bytes; what it printed.

    Raises:
        BenchmarkError: it failed.
    """
    command = [sys.executable, "-m", "nats_bridge", *words, "--json", "--quiet", "--master", f"local[{cores}]"]
    with peak_of_tree() as peak:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode not in exits:
        raise BenchmarkError(f"{words[0]}: exit {done.returncode}: {done.stderr.strip()[-500:]}")
    reported: dict[str, Any] = json.loads(done.stdout)
    parts = reported.get("sources", [reported])  # a rule's sources are copied one after the other
    return sum(float(part["seconds"]) for part in parts), peak.held, reported
