"""The fewest messages that have to be taken out for the rest to be in order."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

__all__ = ["displaced"]


def displaced(values: Sequence[int]) -> list[int]:
    """The indexes of all values that are not in a longest increasing subsequence; of several, the one that ends lowest.

    Takes time as n log n, and memory for three integers per value.

    Args:
        values: all different.
    """
    ends: list[int] = []  # the lowest value with which an increasing subsequence of each length ends
    places: list[int] = []  # where that value is
    before = [-1] * len(values)
    for at, value in enumerate(values):
        length = bisect_left(ends, value)
        if length:
            before[at] = places[length - 1]
        if length == len(ends):
            ends.append(value)
            places.append(at)
        else:
            ends[length] = value
            places[length] = at
    kept = set()
    at = places[-1] if places else -1
    while at >= 0:
        kept.add(at)
        at = before[at]
    return [at for at in range(len(values)) if at not in kept]
