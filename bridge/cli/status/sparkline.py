"""A row of numbers as a row of small bars."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["sparkline"]

_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float | None], width: int) -> str:
    """The last `width` values, the newest at the right; a blank where there is none.

    The lowest bar is zero, the highest the largest value shown.
    """
    shown = list(values[-width:]) if width > 0 else []
    top = max((value for value in shown if value is not None), default=0)
    return "".join(_bar(value, top) for value in shown).rjust(max(width, 0))


def _bar(value: float | None, top: float) -> str:
    if value is None:
        return " "
    if value <= 0 or top <= 0:
        return _BARS[0]
    return _BARS[math.ceil(value / top * (len(_BARS) - 1))]
