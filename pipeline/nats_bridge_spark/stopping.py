"""SIGINT and SIGTERM while a job runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def listening(on_stop: Callable[[signal.Signals, FrameType | None], None]) -> Iterator[Callable[[], None]]:
    """Call `on_stop`, in the main thread, for each SIGINT and SIGTERM that comes inside of the block.

    It is called with the signal and the interrupted frame.

    Yields a function that installs the handlers again, after something else has replaced them. Outside the main thread,
    which alone receives signals, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return

    def handler(number: int, frame: FrameType | None) -> None:
        on_stop(signal.Signals(number), frame)

    def listen() -> None:
        for number in _SIGNALS:
            signal.signal(number, handler)

    before: dict[signal.Signals, Any] = {number: signal.getsignal(number) for number in _SIGNALS}
    listen()
    try:
        yield listen
    finally:
        for number, old in before.items():
            signal.signal(number, old if old is not None else signal.SIG_DFL)


def in_java(frame: FrameType | None) -> bool:
    """Return whether Python waits for an answer of Java's in this frame.

    An exception raised there would break the line.
    """
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith("py4j."):
            return True
        frame = frame.f_back
    return False
