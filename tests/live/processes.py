"""What the system knows about processes."""

from __future__ import annotations

import contextlib
from pathlib import Path


def stands_still(pid: int) -> bool:
    """Whether a process has stopped after SIGSTOP: with few processors one thread gets it first."""
    stats = [(thread / "stat").read_text() for thread in Path(f"/proc/{pid}/task").iterdir()]
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)


def of_session(leader: int) -> list[int]:
    """The processes of a session that are not ended; its leader was started with `start_new_session`."""
    found = []
    for place in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            if place.name.isdigit():
                state, _, _, session, *_ = (place / "stat").read_text().rpartition(")")[2].split()
                if int(session) == leader and state != "Z":
                    found.append(int(place.name))
    return found
