"""The request for a backfill, and its result."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class BackfillRequest:
    """The request, as the command line gives it.

    Attributes:
        sources: names of streams (buckets, for `kv_sources`) of the rule to copy from; none for all.
        capture: the place of a captured history; None for the live stream.
        first: the first sequence wanted; None for the rule's own start.
        last: the last sequence wanted; None for the end of the stream or capture when the job starts.
        patience: seconds for which the target may be down or full before the job gives up.
    """

    rule: str
    sources: tuple[str, ...] = ()
    capture: str | None = None
    first: int | None = None
    last: int | None = None
    patience: float = 60.0


@dataclass(slots=True)
class EntrySummary:
    """The result of one source's history.

    Attributes:
        first: the first sequence of the job; earlier messages were copied before, or are not wanted.
        already_there: messages found in the target, where an earlier attempt had stored them.
        skipped: rejected by the target permanently and sent to the dead letters.
        out_of_order: stored after later ones.
        next_sequence: the sequence at which the live rule resumes.
    """

    source: str
    target: str
    first: int
    last: int
    read: int = 0
    copied: int = 0
    already_there: int = 0
    unselected: int = 0
    duplicates: int = 0
    skipped: int = 0
    out_of_order: int = 0
    seconds: float = 0.0
    next_sequence: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as plain data, with the rate in messages per second."""
        rate = round(self.copied / self.seconds) if self.seconds else 0
        return {**asdict(self), "seconds": round(self.seconds, 3), "rate": rate}

    def lines(self) -> list[str]:
        """Return the summary as lines of text."""
        if self.read == 0:
            return [
                f"{self.source} → {self.target}: nothing to copy; the next message is sequence {self.next_sequence}"
            ]
        rate = f", {self.copied / self.seconds:,.0f}/s" if self.seconds else ""
        reported = [
            (self.already_there, "already there"),
            (self.unselected, "not selected"),
            (self.duplicates, "duplicates by message id"),
            (self.skipped, "skipped to the dead letters"),
            (self.out_of_order, "stored behind later ones"),
        ]
        rest = "".join(f", {count:,} {what}" for count, what in reported if count)
        return [
            f"{self.source} → {self.target}: {self.copied:,} copied of {self.read:,} read ({self.first} to {self.last})"
            f"{rest}; {self.seconds:.1f} s{rate}",
            f"  the live rule resumes at sequence {self.next_sequence}",
        ]
