"""What a differential run found, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A disagreement of server and engine.

    Attributes:
        number: of the trial; with the seed it can be drawn again.
        kind: what was compared.
        where: the place of the difference.
        native: what the server showed there.
        engine: the engine's.
        entry: a case file with the shrunk trial; empty where it was not shrunk.
        asked: the number of requests to the server for it.
    """

    number: int
    kind: str
    where: str
    native: str
    engine: str
    entry: str = ""
    asked: int = 0

    @property
    def input(self) -> str:
        """The shrunk trial without comments and id, by which equal ones are found; empty where it was not shrunk."""
        return self.entry.partition("\n  title:")[2]


@dataclass(frozen=True, slots=True)
class DifferentialResult:
    """One run against one version.

    Attributes:
        wanted: comparisons that were asked for.
        comparisons: that were made, by kind; equal inputs count once, and what neither side can show does not count.
        repeated: equal inputs that were compared again.
        invisible: messages of which neither side could have shown anything.
        trials: that were put to the server.
        held_back: trials that were not, by reason.
        disagreements: shrunk ones first.
        seconds: the whole run took.
    """

    version: str
    seed: int
    wanted: int
    comparisons: Mapping[str, int]
    repeated: int
    invisible: int
    trials: int
    held_back: Mapping[str, int]
    seconds: float
    disagreements: tuple[Disagreement, ...] = field(default=())

    @property
    def total(self) -> int:
        """All comparisons."""
        return sum(self.comparisons.values())

    @property
    def is_good(self) -> bool:
        """Whether server and engine agreed everywhere."""
        return not self.disagreements
