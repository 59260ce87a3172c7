"""How many processes a sidecar's rules are spread over."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from bridge.settings import Settings

__all__ = ["usable_cores", "worker_count"]

_CGROUPS: Final = Path("/sys/fs/cgroup")
_OWN_CGROUP: Final = Path("/proc/self/cgroup")


def worker_count(settings: Settings) -> int:
    """How many workers a configuration asks for on this machine: at least one, and never more than rules."""
    wanted = usable_cores() if settings.workers == "auto" else settings.workers
    return max(min(wanted, len(settings.rules)), 1)


def usable_cores(cgroups: Path = _CGROUPS, own_cgroup: Path = _OWN_CGROUP) -> int:
    """The cores that this process may use: its affinity, and what its control groups allow (part of a core: all of it).

    Args:
        cgroups: where control groups are, for tests.
        own_cgroup: what says which one is ours, for tests.
    """
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota(cgroups, own_cgroup)
    return affinity if quota is None else max(min(affinity, -int(-quota // 1)), 1)


def _quota(cgroups: Path, own_cgroup: Path) -> float | None:
    """How many cores' time the control groups of this process allow; None where they set no limit."""
    try:
        lines = [line.split(":", 2) for line in own_cgroup.read_text("utf-8").splitlines()]
    except OSError:
        return None  # not Linux
    found: list[float] = []
    for number, controllers, path in (line for line in lines if len(line) == 3):
        if number == "0":  # version 2: one tree
            found += [limit for folder in _upwards(cgroups, path) if (limit := _version_2(folder)) is not None]
        elif "cpu" in controllers.split(","):
            found += [limit for folder in _upwards(cgroups / "cpu", path) if (limit := _version_1(folder)) is not None]
    return min(found, default=None)


def _upwards(root: Path, path: str) -> list[Path]:
    """A group's folder and those around it: each of them limits. In a container its own one is the root."""
    parts = [part for part in path.split("/") if part and part != ".."]
    return [root.joinpath(*parts[:length]) for length in range(len(parts), -1, -1)]


def _version_2(folder: Path) -> float | None:
    try:
        quota, period = (folder / "cpu.max").read_text("utf-8").split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _version_1(folder: Path) -> float | None:
    try:
        quota = int((folder / "cpu.cfs_quota_us").read_text("utf-8"))
        return quota / int((folder / "cpu.cfs_period_us").read_text("utf-8")) if quota > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None
