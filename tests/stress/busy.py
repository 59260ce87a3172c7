"""Busy loops, with the priority of the tests."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

# Exits when its parent has ended, also by SIGKILL.
_LOOP = """
import os
while os.getppid() == {parent}:
    for _ in range(100_000):
        pass
"""


@contextlib.contextmanager
def busy_loops(count: int) -> Iterator[list[int]]:
    """Keep so many processors busy; the process ids."""
    command = [sys.executable, "-ISc", _LOOP.format(parent=os.getpid())]
    loops: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(count):
            loops.append(subprocess.Popen(command, start_new_session=True))  # noqa: PERF401  # each is ended, come what may
        yield [loop.pid for loop in loops]
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
