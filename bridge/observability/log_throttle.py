"""Warnings that would come with every message are said now and then."""

from __future__ import annotations

import time

__all__ = ["Pace"]


class Pace:
    """Says whether it is time to say something again.

    Args:
        pause: seconds between two times.
    """

    def __init__(self, pause: float = 10.0) -> None:
        self._pause = pause
        self._next = 0.0

    def due(self) -> bool:
        """Whether the pause since the last time that this was true is over."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._pause
        return True
