"""Arithmetic and printing of figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True)
class Ratio:
    """A figure that compares two measurements of one run.

    Attributes:
        name: what is compared with what.
        value: the figure.
        target: what it should reach; None where nothing was promised.
        at_most: whether smaller is better.
        unit: `x` for times as much, else that of the difference.
    """

    name: str
    value: float
    target: float | None = None
    at_most: bool = False
    unit: str = "x"

    @property
    def reached(self) -> bool | None:
        """Whether the target is reached; None without one."""
        if self.target is None:
            return None
        return self.value <= self.target if self.at_most else self.value >= self.target

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "reached": self.reached}

    def __str__(self) -> str:
        text = f"{self.name}: {self.value:.2f} {self.unit}"
        if self.target is None:
            return text
        sign = "at most" if self.at_most else "at least"
        return f"{text} (wanted: {sign} {self.target:g}; {'reached' if self.reached else 'MISSED'})"


@dataclass(frozen=True, slots=True)
class Point:
    """What was measured of one series at one place, as numbers, for a picture.

    Attributes:
        series: such as `native`.
        at: the place on the axis, such as a size in bytes.
        values: what was measured, by name.
    """

    series: str
    at: float
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Report:
    """What a benchmark found.

    Attributes:
        header: of the table.
        rows: of the table.
        ratios: the comparisons.
        notes: sentences about the rows.
        points: the rows as numbers.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    ratios: Sequence[Ratio]
    notes: Sequence[str] = ()
    points: Sequence[Point] = ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        rows = [dict(zip(self.header, row, strict=True)) for row in self.rows]
        found = {"rows": rows, "notes": list(self.notes), "ratios": [ratio.as_dict() for ratio in self.ratios]}
        return {**found, "points": [asdict(point) for point in self.points]} if self.points else found

    def __str__(self) -> str:
        parts = [table(self.header, self.rows), *self.notes, "\n".join(f"- {ratio}" for ratio in self.ratios)]
        return "\n\n".join(parts)


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below which `percent` of the values lie (nearest rank).

    Raises:
        ValueError: there are no values, or the percentage is outside (0, 100].
    """
    if not values or not 0 < percent <= 100:
        raise ValueError(f"no {percent} % of {len(values)} values")
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)
    return ordered[int(rank) - 1]


def median_of(rounds: Sequence[float]) -> float:
    """The middle of several rounds.

    Raises:
        statistics.StatisticsError: there are none.
    """
    return median(rounds)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown whose columns line up: the first to the left, the others to the right."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        first, *others = zip(cells, widths, strict=True)
        return "| " + " | ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]) + " |"

    rule = (
        "|" + "|".join(f"{'-' * (width + 1)}{'-' if column == 0 else ':'}" for column, width in enumerate(widths)) + "|"
    )
    return "\n".join([line(header), rule, *map(line, rows)])
