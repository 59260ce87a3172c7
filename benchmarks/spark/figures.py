"""What was measured: one figure per arm, number of messages and number of cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Figure", "slope"]


@dataclass(frozen=True, slots=True)
class Figure:
    """A measurement.

    Attributes:
        arm: what was done.
        messages: how many were handled.
        cores: how many cores Spark was given; 1 for a loop without Spark.
        seconds: how long it took, without the start of processes; the best time where it was done several times.
        peak_bytes: the most memory that the program and its children held together; 0 where it was not asked for.
        first_seconds: how long the first of several times took; 0 where it was done once.
    """

    arm: str
    messages: int
    cores: int
    seconds: float
    peak_bytes: int = 0
    first_seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "rate": round(self.rate)}


def slope(figures: Sequence[Figure]) -> float | None:
    """How much more a message costs in the largest run than in the smallest one; None with one size only.

    1 where the cost grows as the size does. Of each size the fastest run counts.
    """
    best: dict[int, float] = {}
    for figure in figures:
        cost = figure.seconds / figure.messages
        best[figure.messages] = min(cost, best.get(figure.messages, cost))
    return best[max(best)] / best[min(best)] if len(best) > 1 else None
