"""Latencies as counts per bucket: cheap to record, ready to be exported, good for estimates of quantiles."""

from bisect import bisect_left
from collections.abc import Sequence

BOUNDS = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0),
)
"""Upper bounds of the buckets in seconds, inclusive. One more bucket has no bound."""


class Latencies:
    """Latencies since the process started.

    Attributes:
        counts: the number of values in each bucket; one more than `BOUNDS`.
        total: their sum in seconds.
    """

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def record(self, seconds: float) -> None:
        """Count one. Clocks of two machines may make it negative, which counts as 0."""
        if seconds < 0:
            seconds = 0.0
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


def quantile(counts: Sequence[int], share: float) -> float | None:
    """Estimate a quantile in seconds from counts by bucket. Return None if all are zero.

    Values are assumed to be spread evenly within a bucket. Values above the last bound are reported as that bound.

    Args:
        counts: one more than there are `BOUNDS`.
        share: such as 0.99.
    """
    whole = sum(counts)
    if not whole:
        return None
    wanted, below = share * whole, 0
    for bucket, count in enumerate(counts[:-1]):
        if count and below + count >= wanted:
            lower = BOUNDS[bucket - 1] if bucket else 0.0
            return lower + (BOUNDS[bucket] - lower) * (wanted - below) / count
        below += count
    return BOUNDS[-1]
