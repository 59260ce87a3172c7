"""One way to copy, what each round measured of it, and its row in a table."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from benchmarks.copy_scene import Copying, Scene, native_copy, own_copy
from benchmarks.figures import Point, median_of

__all__ = ["HEADER", "Arm", "pair"]

HEADER = (
    "median of the rounds",
    "messages/s",
    "lowest",
    "highest",
    "first to last",
    "µs CPU per message",
    "of the server",
)


@dataclass(slots=True)
class Arm:
    """One way to copy.

    Attributes:
        name: for the table.
        copy: begins and ends it.
        rates: messages per second from the beginning to the last copy; one figure per round, as in the others.
        steady: messages per second from the first copy to the last; stays empty where that says nothing.
        cpu: microseconds of the sidecar per message; stays empty where there is none.
        server_cpu: microseconds of the servers per message.
        launch: seconds from the launch of the sidecar to the beginning.
        peak: the most bytes of memory that the program held.
    """

    name: str
    copy: Callable[[Scene], AbstractContextManager[Copying]]
    rates: list[float] = field(default_factory=list)
    steady: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    server_cpu: list[float] = field(default_factory=list)
    launch: list[float] = field(default_factory=list)
    peak: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """The median of the rounds.

        Raises:
            statistics.StatisticsError: there were none.
        """
        return median_of(self.rates)

    def row(self) -> tuple[str, ...]:
        """As `HEADER` says."""
        rates = self.rate, min(self.rates), max(self.rates)
        cpu = [f"{median_of(used):.1f}" if used else "-" for used in (self.cpu, self.server_cpu)]
        steady = f"{median_of(self.steady):,.0f}" if self.steady else "-"
        return self.name, *(f"{rate:,.0f}" for rate in rates), steady, *cpu

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


def pair(where: str) -> tuple[Arm, Arm]:
    """The server's own copying and ours, in the same place."""
    return Arm(f"{where}: native", native_copy), Arm(f"{where}: nats-bridge", own_copy)
