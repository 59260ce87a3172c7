"""The plan as a picture: the messages of each partition, before and after."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline.errors import OptionError, PipelineError
from pipeline.partition_plan.plan import Load, Plan, percent, skew

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["KINDS", "check", "draw"]

KINDS: Final = (".png", ".svg")

_STAYS, _MOVES, _MEAN, _TEXT = "#4878a8", "#e8a33d", "#444444", "#222222"
_TICKS: Final = 32


def check(file: Path) -> None:
    """Whether a picture can be made into this file; asked before the work begins.

    Raises:
        OptionError: its name has another ending, its folder is missing, or matplotlib is.
    """
    if file.suffix.lower() not in KINDS:
        raise OptionError(f"--picture {file}: the name must end in {' or '.join(KINDS)}")
    if not file.parent.is_dir():
        raise OptionError(f"--picture {file}: there is no folder {file.parent}")
    try:
        import matplotlib  # noqa: F401  # only whether it is there
    except ImportError:
        raise OptionError("--picture: matplotlib is not installed: pip install 'nats-bridge[spark]'") from None


def draw(plan: Plan, file: Path) -> None:
    """Make the picture; the file's ending says of what kind.

    Raises:
        PipelineError: the file cannot be written.
    """
    import matplotlib as mpl

    # No window and no global state: a figure of its own, drawn by Agg or as SVG.
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    change = plan.change
    with mpl.rc_context({"svg.hashsalt": "nats-bridge", "font.size": 10, "text.color": _TEXT}):
        figure = Figure(figsize=(11, 5), layout="constrained")
        sides = figure.subplots(1, 2, sharey=True, width_ratios=[*_widths(change.before, change.after)])
        _bars(sides[0], plan.before, f"before: {change.before} partitions")
        _bars(sides[1], plan.after, f"after: {change.after} partitions")
        sides[0].set_ylabel("messages")
        figure.suptitle(
            f"{change.before} → {change.after} partitions:"
            f" {percent(plan.moved_keys, plan.keys):.1f} % of {plan.keys:,} keys and"
            f" {percent(plan.moved_messages, plan.messages):.1f} % of {plan.messages:,} messages move",
            fontsize=13,
        )
        figure.legend(
            handles=[
                Patch(color=_STAYS, label="keys that stay in their partition"),
                Patch(color=_MOVES, label="keys that move: leave (left), arrive (right)"),
            ],
            loc="outside lower center",
            ncols=2,
            frameon=False,
        )
        try:
            figure.savefig(file, dpi=130, metadata={"Date": None} if file.suffix.lower() == ".svg" else None)
        except OSError as error:
            raise PipelineError(f"--picture {file}: {error.strerror or error}") from None


def _widths(before: int, after: int) -> tuple[float, float]:
    # As wide as the number of bars asks for, but neither side less than a quarter.
    share = min(max(before / (before + after), 0.25), 0.75)
    return share, 1 - share


def _bars(side: Axes, loads: Sequence[Load], title: str) -> None:
    numbers = [load.partition for load in loads]
    stay = [load.messages - load.moved_messages for load in loads]
    move = [load.moved_messages for load in loads]
    wide = 0.8 if len(loads) <= 2 * _TICKS else 1.0
    side.bar(numbers, stay, wide, color=_STAYS)
    side.bar(numbers, move, wide, bottom=stay, color=_MOVES)
    mean = sum(load.messages for load in loads) / len(loads)
    side.axhline(mean, color=_MEAN, linewidth=1, linestyle="--")
    side.set_title(f"{title}, mean {mean:,.0f}, max / mean {skew(loads):.2f}", fontsize=10)
    side.set_xlabel("partition")
    step = -(-len(loads) // _TICKS)
    side.set_xticks(numbers[::step])
    side.margins(x=0.02)
    side.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    side.spines[["top", "right"]].set_visible(False)
