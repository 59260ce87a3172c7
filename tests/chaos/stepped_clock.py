"""`nats-bridge run` with a clock whose error can be changed while it runs, through a file of eight bytes.

It is the sidecar's own clock, and no server's: that of the machine is everybody's, a time namespace moves only the
monotonic ones, and Go takes the time from the kernel, past every library that could be put in its place.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path

FILE = "CHAOS_CLOCK"
"""The environment variable that names the file."""

_ERROR = struct.Struct("<q")  # nanoseconds


def step(file: Path, seconds: int) -> None:
    """Let the clocks that follow a file be wrong by so much; a clock that runs already follows at once."""
    with file.open("r+b" if file.exists() else "w+b") as opened:
        opened.write(_ERROR.pack(seconds * 10**9))


def _follow(file: Path) -> None:
    """Let the time of day of this process have the error that a file holds."""
    true_ns = time.time_ns
    with file.open("rb") as opened:
        error = mmap.mmap(opened.fileno(), _ERROR.size, access=mmap.ACCESS_READ)

    def time_ns() -> int:
        return true_ns() + int(_ERROR.unpack_from(error)[0])

    setattr(time, "time_ns", time_ns)  # noqa: B010 - mypy refuses an assignment
    setattr(time, "time", lambda: time_ns() / 10**9)  # noqa: B010


if __name__ == "__main__":
    _follow(Path(os.environ[FILE]))
    from nats_bridge.cli import main

    main()
