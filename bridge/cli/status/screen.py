"""A full-screen view in a terminal that is drawn again and again, and leaves the terminal as it was.

The view has a screen of its own (the "alternate" one), so what was in the terminal before is there again afterwards. A
frame is written over the one before, line by line, and nothing is cleared first: nothing flickers.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import termios
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

__all__ = ["Screen", "screen"]

_ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[2J"
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_HOME, _END_OF_LINE, _BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


class Screen:
    """A terminal's screen while the view is shown; made by `screen`."""

    def __init__(self, wakened: int) -> None:
        self._wakened = wakened

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines, as they are now."""
        found = shutil.get_terminal_size()
        return max(found.columns, 1), max(found.lines, 1)

    def show(self, lines: list[str]) -> None:
        """Draw a frame; lines below the screen's end are left out."""
        _, height = self.size
        drawn = [line + _END_OF_LINE for line in lines[:height]]
        sys.stdout.write(_HOME + "\r\n".join(drawn) + _BELOW)
        sys.stdout.flush()

    def wait(self, seconds: float) -> bool:
        """Wait; False as soon as `q` is pressed. Returns early when the screen's size changes."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            ready, _, _ = select.select([sys.stdin, self._wakened], [], [], left)
            if sys.stdin in ready:
                typed = os.read(sys.stdin.fileno(), 64)
                if not typed or b"q" in typed.lower():
                    return False
            if self._wakened in ready:
                os.read(self._wakened, 64)
                break
        return True


@contextlib.contextmanager
def screen() -> Iterator[Screen]:
    """Switch to a full screen, and restore the terminal at the end, whatever happens."""
    wakened, waking = os.pipe()
    os.set_blocking(waking, False)
    os.set_blocking(wakened, False)
    before = termios.tcgetattr(sys.stdin)

    def enter() -> None:
        quiet = termios.tcgetattr(sys.stdin)
        quiet[3] &= ~(termios.ECHO | termios.ICANON)  # keys are not shown, and come at once; Ctrl-C stays what it is
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, quiet)
        sys.stdout.write(_ENTER)
        sys.stdout.flush()

    def leave() -> None:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)

    def on_resize(_: int, __: FrameType | None) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(waking, b"w")

    def on_suspend(_: int, __: FrameType | None) -> None:
        leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        enter()
        on_resize(0, None)

    def on_end(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    handlers: dict[signal.Signals, Callable[[int, FrameType | None], Any]] = {
        signal.SIGWINCH: on_resize,
        signal.SIGTSTP: on_suspend,
        signal.SIGINT: on_end,  # also where it was ignored, as in a script's background: the screen promises Ctrl-C
        signal.SIGTERM: on_end,
        signal.SIGHUP: on_end,
    }
    earlier = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        enter()
        yield Screen(wakened)
    finally:
        leave()
        for number, handler in earlier.items():
            signal.signal(number, handler)
        os.close(wakened)
        os.close(waking)
