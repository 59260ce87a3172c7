"""Handles signals in the first moments of `nats-bridge run`, before there is anything to drain.

A process without handlers is killed by SIGTERM and SIGHUP, and importing the sidecar takes a good part of a second.
Nothing but the standard library is imported here, so that this is in place first.
"""

import os
import signal
from types import FrameType

_hangups: list[int] = []


def listen_early() -> None:
    """End the process with 0 on SIGTERM and SIGINT: nothing has begun. SIGHUP is kept for `hangup_came`."""
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    signal.signal(signal.SIGHUP, _keep)


def hangup_came() -> bool:
    """Return whether a SIGHUP has arrived since the last call."""
    came = bool(_hangups)
    _hangups.clear()
    return came


def _end(_: int, __: FrameType | None) -> None:
    os._exit(0)  # at once, also in the middle of an import


def _keep(number: int, _: FrameType | None) -> None:
    _hangups.append(number)
