"""The clock by which a replica measures its own waiting; it is never compared with another machine's."""

from __future__ import annotations

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # Linux: counts while the machine sleeps, too


def now() -> float:
    """Seconds since some moment in the past; keeps counting while the process, or the machine, is stopped."""
    return time.clock_gettime(_CLOCK)
