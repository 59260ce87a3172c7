"""The history: one JSON object per line, in the order in which things were seen to happen.

Every line has `t`, seconds since the start of the run, and `event`. Bytes are written as text of the same code points
(latin-1), payloads as size and digest: equal digests mean equal payloads.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

Event: TypeAlias = dict[str, Any]
"""One line."""

ADVISORIES: Final = "advisories"
"""The listener that receives advisories."""

_MESSAGES = re.compile(r'\{"t":[0-9.]+,"event":"(?:sent|stored|received|final)","(?:to|name|stream)":"([^"]*)"')


class Historian:
    """Writes the history of one run.

    Args:
        path: the file, which is overwritten.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("w", encoding="ascii")
        self._start = time.monotonic()

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return round(time.monotonic() - self._start, 4)

    def record(self, event: str, **members: Any) -> float:
        """Append a line, and return its time."""
        now = self.now
        json.dump({"t": now, "event": event, **members}, self._file, separators=(",", ":"))
        self._file.write("\n")
        return now

    def flush(self) -> None:
        """Flush everything written so far to the file."""
        self._file.flush()

    def close(self) -> None:
        """No more lines."""
        self._file.close()


def read_history(path: Path, places: Collection[str] | None = None) -> Iterator[Event]:
    """The lines of a history, one after the other.

    Args:
        path: the file.
        places: the streams and listeners whose messages are wanted; None for all. Other lines come in any case.

    Raises:
        ValueError: a line is no JSON object.
    """
    with path.open(encoding="ascii") as file:
        for number, line in enumerate(file, 1):
            if places is not None and (found := _MESSAGES.match(line)) and found[1] not in places:
                continue
            try:
                event = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{path}:{number}: {error}") from None
            if not isinstance(event, dict):
                raise ValueError(f"{path}:{number}: not an object")  # noqa: TRY004 - one error for a bad line
            yield event


def digest_of(payload: bytes) -> str:
    """The digest that replaces a payload."""
    return hashlib.blake2b(payload, digest_size=8).hexdigest()


def text_of(data: bytes) -> str:
    """Bytes as text of the same code points."""
    return data.decode("latin-1")
