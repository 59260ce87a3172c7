"""What was measured, one figure per arm, number of messages and number of cores; and a picture of cost against size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_APART = 1.3  # factor between two labels, so that neither hides the other
_COLOURS = ("#0b6e99", "#d9730d", "#448361", "#9065b0", "#c14c8a", "#787774", "#8a6d00")


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


def draw(figures: Sequence[Figure], place: Path, *, cores: int, caption: str) -> None:
    """Draw seconds over messages, both logarithmic, one line for each arm that ran with more than one size.

    Args:
        figures: all that was measured.
        place: the picture, `.png` or `.svg`.
        cores: only what ran on so many.
        caption: what was measured where, below the title.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    arms: dict[str, dict[int, float]] = {}
    for figure in figures:
        if figure.cores == cores:
            arms.setdefault(figure.arm, {})[figure.messages] = figure.seconds
    drawn = {arm: sizes for arm, sizes in arms.items() if len(sizes) > 1}
    picture, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    ends: list[tuple[float, int, str, str]] = []
    for colour, (arm, sizes) in zip(_COLOURS * 3, drawn.items(), strict=False):
        counts = sorted(sizes)
        seconds = [sizes[count] for count in counts]
        axes.plot(counts, seconds, "o-", color=colour, linewidth=2)
        linear = [seconds[0] * count / counts[0] for count in counts]
        axes.plot(counts, linear, ":", color=colour, linewidth=1)
        ends.append((seconds[-1], counts[-1], f"{arm}  {counts[-1] / seconds[-1]:,.0f}/s", colour))
    beneath = 0.0
    for end, count, text, colour in sorted(ends):
        beneath = max(end, beneath * _APART)
        axes.annotate(
            text, (count, beneath), xytext=(8, 0), textcoords="offset points", va="center", color=colour, fontsize=9
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("messages")
    axes.set_ylabel("seconds (lower is better)")
    axes.set_title(f"Cost against size, {cores} cores", loc="left", fontweight="bold", pad=20)
    axes.text(0, 1.015, caption, transform=axes.transAxes, fontsize=8, color="#787774")
    axes.grid(visible=True, which="both", color="#eeeeee")
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.45, y=0.1)
    axes.text(0.99, 0.02, "dotted: in proportion to the size", transform=axes.transAxes, fontsize=8, ha="right")
    picture.savefig(place, dpi=120)
    pyplot.close(picture)
