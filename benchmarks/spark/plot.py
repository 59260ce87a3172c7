"""A picture of cost against size: seconds over messages, both logarithmic, one line per arm."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.spark.figures import Figure

__all__ = ["draw"]

_APART = 1.3  # factor between two labels, so that neither hides the other
_COLOURS = ("#0b6e99", "#d9730d", "#448361", "#9065b0", "#c14c8a", "#787774", "#8a6d00")


def draw(figures: Sequence[Figure], place: Path, *, cores: int, caption: str) -> None:
    """Draw the arms that ran on so many cores with more than one size.

    Args:
        figures: all that was measured.
        place: the picture, `.png` or `.svg`.
        cores: which of them to draw.
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
