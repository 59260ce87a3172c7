"""What each round of an arm measured, whatever the arm does."""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks.figures import Point, median_of

__all__ = ["Rounds"]


@dataclass(slots=True, kw_only=True)
class Rounds:
    """The figures of an arm, one per round in each list.

    Attributes:
        rates: messages per second.
        cpu: microseconds of the program per message; empty where there is none.
        server_cpu: microseconds of the servers per message.
        peak: the most bytes of memory that the program held.
    """

    rates: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    server_cpu: list[float] = field(default_factory=list)
    peak: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """The median of the rounds.

        Raises:
            statistics.StatisticsError: there were none.
        """
        return median_of(self.rates)

    @property
    def rate_cells(self) -> list[str]:
        """Median, lowest and highest rate, for a table."""
        return [f"{rate:,.0f}" for rate in (self.rate, min(self.rates), max(self.rates))]

    @property
    def cpu_cells(self) -> list[str]:
        """The program's processor time and the server's, for a table."""
        return [f"{median_of(used):.1f}" if used else "-" for used in (self.cpu, self.server_cpu)]

    def point(self, series: str, at: float) -> Point:
        """The medians as numbers.

        Args:
            series: what the arm is called in a picture.
            at: its place there.
        """
        values = {"rate": self.rate, "lowest": min(self.rates), "highest": max(self.rates)}
        for name, found in (("cpu", self.cpu), ("server_cpu", self.server_cpu), ("peak", self.peak)):
            if found:
                values[name] = median_of(found)
        return Point(series, at, values)
