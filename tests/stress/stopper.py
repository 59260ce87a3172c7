"""`python -m tests.stress.stopper PID SEED LOCK`: stops descendants of a process for moments until that process ends.

One at a time, for 10 to 300 ms. A process that is stopped already is left alone: the stop is not ours. LOCK is a file
that is locked while something is stopped; a test that must not be disturbed locks it. Each stop is a line of the
output.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

_STOPPED_OR_GONE = "TtZX"


def main(pid: int, seed: int, lock: Path) -> None:
    """Stop and continue descendants until the process has ended."""
    draw = random.Random(seed)
    try:
        ends = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    with lock.open() as held:
        while not _gone(ends, draw.uniform(0.02, 0.5)):
            fcntl.flock(held, fcntl.LOCK_EX)
            if found := sorted(descendants(pid)):
                _stop(draw.choice(found), ends, draw.uniform(0.01, 0.3))
            fcntl.flock(held, fcntl.LOCK_UN)


def descendants(pid: int) -> Iterator[int]:
    """All processes below this one that run."""
    parents: dict[int, int] = {}
    states: dict[int, str] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, parent = (process / "stat").read_text().rpartition(")")[2].split()[:2]
            parents[int(process.name)], states[int(process.name)] = int(parent), state
    for number, state in states.items():
        above: int | None = number
        while (above := parents.get(above or 0)) is not None:
            if above == pid:
                if state not in _STOPPED_OR_GONE:
                    yield number
                break


def _stop(pid: int, ends: int, seconds: float) -> None:
    try:
        process = os.pidfd_open(pid)  # and not its number, which may be another one's when it is continued
    except ProcessLookupError:
        return
    try:
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it ended just now
            command = Path(f"/proc/{pid}/comm").read_text().strip()
            signal.pidfd_send_signal(process, signal.SIGSTOP)
            print(f"{pid} {command} {seconds * 1000:.0f} ms", flush=True)
            _gone(ends, seconds)
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGCONT)
        os.close(process)


def _gone(ends: int, seconds: float) -> bool:
    return bool(select.select([ends], [], [], seconds)[0])


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
