"""Processes that were stopped (SIGSTOP) for a while."""

from __future__ import annotations

from pathlib import Path


def stands_still(pid: int) -> bool:
    """Whether a process has stopped after SIGSTOP: with few processors one thread gets it first."""
    stats = [(thread / "stat").read_text() for thread in Path(f"/proc/{pid}/task").iterdir()]
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)
