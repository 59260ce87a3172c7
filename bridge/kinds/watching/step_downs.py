"""When the leader of a stream may be asked to step down. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_FIRST: Final = 60.0  # seconds from one step down to the next of the same stream
_LONGEST: Final = 3600.0  # the same, where streams stall again and again; each time twice as long


@dataclass(slots=True)
class _Asked:
    at: float
    pause: float
    in_this_stall: bool = True


class StepDowns:
    """Once in a stall, later each time that a stream stalls again, and never two streams in one look."""

    def __init__(self) -> None:
        self._asked: dict[str, _Asked] = {}

    def may(self, stream: str, now: float) -> bool:
        """Whether a stalled stream's leader may be asked now, in seconds of a monotonic clock."""
        before = self._asked.get(stream)
        return before is None or (not before.in_this_stall and now - before.at >= before.pause)

    def asked(self, stream: str, now: float) -> None:
        """Note that it was asked."""
        before = self._asked.get(stream)
        pause = _FIRST
        if before is not None and now - before.at < before.pause + _LONGEST:
            pause = min(2 * before.pause, _LONGEST)
        self._asked[stream] = _Asked(now, pause)

    def recovered(self, stream: str) -> None:
        """Note that none of the stream's links is stalled any more."""
        if (before := self._asked.get(stream)) is not None:
            before.in_this_stall = False
