"""Handles Handles Handles SIGINT and SIGTERM in commands that finish what is in flight."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["Stop", "stopping"]


@dataclass(slots=True)
class Stop:
    """Whether a signal came.

    Attributes:
        event: set then.
        code: the exit code for it, 130 or 143; 0 where none came.
    """

    event: asyncio.Event = field(default_factory=asyncio.Event)
    code: int = 0


@contextmanager
def stopping() -> Iterator[Stop]:
    """Watch for signals inside the block; a second one ends the process at once.

    In another thread than the main one, where no signals are handled, nothing is noticed.
    """
    stop, loop = Stop(), asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        if stop.code:
            os._exit(stop.code)
        stop.code = 128 + number
        stop.event.set()

    handled = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    for number in handled:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield stop
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
