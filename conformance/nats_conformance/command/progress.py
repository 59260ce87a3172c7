"""Shows the progress of a run: one line that is rewritten on a terminal, otherwise a line for each test subject."""

import sys
from typing import TextIO

_STEP = 20


class RunProgress:
    """Prints the progress of a run on stderr."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._is_terminal = self._stream.isatty()

    def __call__(self, label: str, done: int, total: int) -> None:
        """Show that `done` of `total` cases ran on the subject with this label."""
        if self._is_terminal and (done % _STEP == 0 or done == total):
            end = "\n" if done == total else ""
            self._write(f"\r\x1b[K{label}: {done} of {total} cases{end}")
        elif done == total:
            self._write(f"{label}: {total} cases\n")

    def say(self, text: str) -> None:
        """Write a separate line."""
        self._write(f"\r\x1b[K{text}\n" if self._is_terminal else f"{text}\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
