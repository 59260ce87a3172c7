"""Tracks since when a link makes no progress. Pure."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Progress"]


@dataclass(slots=True)
class Progress:
    """The progress of one link.

    Attributes:
        since: when it was first seen without progress, in seconds of a clock of the caller; None while it makes some.
    """

    since: float | None = None
    _mark: tuple[int, ...] = ()

    def see(self, now: float, mark: tuple[int, ...], behind: bool) -> None:
        """Add a comparison.

        Args:
            now: seconds of the caller's clock.
            mark: another one whenever a message was stored; see `Sight.mark`.
            behind: whether something is missing in the target, or the source cannot be read.
        """
        if not behind or mark != self._mark:
            self.since = now if behind else None
        elif self.since is None:
            self.since = now
        self._mark = mark

    def stalled_for(self, now: float) -> float:
        """Seconds without progress; 0 while there is some."""
        return 0.0 if self.since is None else now - self.since
