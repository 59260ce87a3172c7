"""Since when a link makes no progress. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Progress:
    """What was seen of one link.

    It takes at least three looks: of the time between two of them, half a stall counts at most. Where this
    process was paused for longer, the servers may have been, too.

    Attributes:
        stalled_after: seconds without progress that make a stall.
        since: when it was first seen without progress, in seconds of a clock of the caller; None while it makes some.
        is_stalled: whether it is stalled; it stays so until it makes progress.
    """

    stalled_after: float
    since: float | None = None
    is_stalled: bool = False
    _mark: tuple[int, ...] = ()
    _seen_at: float = 0.0
    _observed: float = 0.0

    def see(self, now: float, mark: tuple[int, ...], behind: bool) -> None:
        """Take a look.

        Args:
            now: seconds of the caller's clock.
            mark: another one whenever a message was stored; see `Sight.mark`.
            behind: whether something is missing in the target, or the source cannot be read.
        """
        if not behind or mark != self._mark:
            self.since = now if behind else None
            self.is_stalled, self._observed = False, 0.0
        else:
            self._without_progress(now)
        self._mark, self._seen_at = mark, now

    def see_nothing(self, now: float) -> None:
        """The target's leader does not answer, although its cluster does."""
        self._without_progress(now)
        self._seen_at = now

    def interrupted(self) -> None:
        """A comparison failed: what happened until the next one is unknown, and does not count as a stall."""
        if not self.is_stalled:
            self.since, self._observed = None, 0.0

    def stalled_for(self, now: float) -> float:
        """Seconds without progress; 0 while there is some."""
        return 0.0 if self.since is None else now - self.since

    def _without_progress(self, now: float) -> None:
        if self.since is None:
            self.since = now
            return
        self._observed += min(now - self._seen_at, self.stalled_after / 2)
        if self._observed >= self.stalled_after:
            self.is_stalled = True
