"""Throttles warnings that every message would cause."""

import time


class Pace:
    """Decides whether it is time to log again.

    Args:
        pause: seconds between two times.
    """

    def __init__(self, pause: float = 10.0) -> None:
        self._pause = pause
        self._next = 0.0

    def due(self) -> bool:
        """Return whether the pause since the last time that this was true is over."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._pause
        return True
