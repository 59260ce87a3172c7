"""The Python processes in which Spark runs the tasks of this test process, to be killed."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from tests.live.cut_wire import CutWire
from tests.live.until import until

_ESTABLISHED = "01"


def workers() -> list[int]:
    """Those that a daemon of our Spark has started."""
    parents, daemons = {}, set()
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        with contextlib.suppress(OSError):  # it has ended
            pid = int(place.name)
            parents[pid] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            if b"pyspark.daemon" in (place / "cmdline").read_bytes():
                daemons.add(pid)
    return [pid for pid in daemons if parents[pid] in daemons and os.getpid() in _ancestors(pid, parents)]


async def kill_workers(wire: CutWire) -> int:
    """SIGKILL; return how many were connected to this wire, which is how many tasks fail.

    Spark hands the next attempt to an idle worker, if it takes one for alive: a dead one would cost the task a second
    of its attempts. So idle workers die first, and their daemon reaps them, before a task fails.
    """
    found = workers()
    busy = [pid for pid in found if _is_connected(pid, wire.port)]
    idle = [pid for pid in found if pid not in busy]
    _kill(idle)
    await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in idle))
    _kill(busy)
    return len(busy)


def _ancestors(pid: int, parents: dict[int, int]) -> set[int]:
    found = set()
    while pid in parents:
        pid = parents[pid]
        found.add(pid)
    return found


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _is_connected(pid: int, port: int) -> bool:
    """Whether the process holds a TCP connection to a port of the loopback."""
    held = set()
    with contextlib.suppress(OSError):  # it may end
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                held.add(str(descriptor.readlink()))
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, _, remote, state, *_, inode = line.split()[:10]
        if state == _ESTABLISHED and int(remote.rpartition(":")[2], 16) == port and f"socket:[{inode}]" in held:
            return True
    return False
