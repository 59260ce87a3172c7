"""One way to copy, what each round measured of it, and its row in a table."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from benchmarks.copy_scene import Copying, Scene, native_copy, own_copy
from benchmarks.figures import median_of
from benchmarks.rounds import Rounds

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
class Arm(Rounds):
    """One way to copy; rates go from the beginning to the last copy.

    Attributes:
        name: for the table.
        copy: begins and ends it.
        steady: messages per second from the first copy to the last; empty where that is meaningless.
        launch: seconds from the launch of the sidecar to the beginning.
    """

    name: str
    copy: Callable[[Scene], AbstractContextManager[Copying]]
    steady: list[float] = field(default_factory=list)
    launch: list[float] = field(default_factory=list)

    def row(self) -> tuple[str, ...]:
        """One row of the table, see `HEADER`."""
        steady = f"{median_of(self.steady):,.0f}" if self.steady else "-"
        return self.name, *self.rate_cells, steady, *self.cpu_cells


def pair(where: str) -> tuple[Arm, Arm]:
    """The server's own copying and ours, in the same place."""
    return Arm(f"{where}: native", native_copy), Arm(f"{where}: nats-bridge", own_copy)
