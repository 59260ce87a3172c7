"""The Python processes in which Spark runs the tasks of this test process, to be killed."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

__all__ = ["kill_workers", "of_session", "workers"]


def workers() -> list[int]:
    """Those that a daemon of our Spark has started."""
    parents, daemons = {}, set()
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        with contextlib.suppress(OSError):  # ended meanwhile
            pid = int(place.name)
            parents[pid] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            if b"pyspark.daemon" in (place / "cmdline").read_bytes():
                daemons.add(pid)
    return [pid for pid in daemons if parents[pid] in daemons and os.getpid() in _ancestors(pid, parents)]


def kill_workers() -> int:
    """SIGKILL; how many there were."""
    found = workers()
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(found)


def of_session(leader: int) -> list[int]:
    """The processes of a session that are not ended; its leader was started with `start_new_session`."""
    found = []
    for place in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # ended meanwhile
            if place.name.isdigit():
                state, _, _, session, *_ = (place / "stat").read_text().rpartition(")")[2].split()
                if int(session) == leader and state != "Z":
                    found.append(int(place.name))
    return found


def _ancestors(pid: int, parents: dict[int, int]) -> set[int]:
    found = set()
    while pid in parents:
        pid = parents[pid]
        found.add(pid)
    return found
