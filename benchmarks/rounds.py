"""What each round of an arm measured, whatever the arm does, and in which order arms have their rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from benchmarks.figures import Point, median_of

HEADER = (
    "median of the rounds",
    "messages/s",
    "lowest",
    "highest",
    "µs CPU per message",
    "of the server",
)


@dataclass(slots=True, kw_only=True)
class Rounds:
    """The figures of an arm, one per round in each list.

    Attributes:
        name: for the table.
        share: of the messages, for what is slow.
        rates: messages per second.
        cpu: microseconds of the program per message; empty where there is none.
        server_cpu: microseconds of the servers per message.
        peak: the most bytes of memory that the program held.
    """

    name: str = field(kw_only=False)
    share: float = 1.0
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
    def used(self) -> float:
        """Microseconds of the program per message, the median of the rounds.

        Raises:
            statistics.StatisticsError: there were none, or there is no program.
        """
        return median_of(self.cpu)

    @property
    def rate_cells(self) -> list[str]:
        """Median, lowest and highest rate, for a table."""
        return [f"{rate:,.0f}" for rate in (self.rate, min(self.rates), max(self.rates))]

    @property
    def cpu_cells(self) -> list[str]:
        """The program's processor time and the server's, for a table."""
        return [f"{median_of(used):.3g}" if used else "-" for used in (self.cpu, self.server_cpu)]

    @property
    def peak_cell(self) -> str:
        """The most memory in megabytes, for a table."""
        return f"{max(self.peak) / 1e6:,.0f}" if self.peak else "-"

    def row(self) -> tuple[str, ...]:
        """One row of the table, see `HEADER`."""
        return self.name, *self.rate_cells, *self.cpu_cells

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


_Arm = TypeVar("_Arm", bound=Rounds)


def turns(benchmark: str, rounds: int, arms: Sequence[_Arm], say: Callable[[str], None]) -> Iterator[_Arm]:
    """The arms in turn, round after round: a slow minute of the machine hits them all.

    Backwards in every other round: whatever comes first finds another machine than what comes last.
    """
    for number in range(1, rounds + 1):
        for arm in arms if number % 2 else arms[::-1]:
            say(f"{benchmark}: round {number} of {rounds}, {arm.name}")
            yield arm
