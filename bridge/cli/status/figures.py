"""Numbers and times in few letters."""

from __future__ import annotations

from datetime import datetime

__all__ = ["clock", "count", "duration", "milliseconds", "per_second"]

_UNITS = ((1e6, 1e3, "k"), (1e9, 1e6, "M"), (1e12, 1e9, "G"), (1e15, 1e12, "T"))
"""Below which number, divided by what, and the letter behind it."""


def count(value: float | None) -> str:
    """`1,234`, `123k`, `4.5M`; `-` for nothing."""
    if value is None:
        return "-"
    if value >= 1e5:
        _, divisor, unit = next((each for each in _UNITS if value < each[0]), _UNITS[-1])
        scaled = value / divisor
        return f"{scaled:.0f}{unit}" if scaled >= 100 else f"{scaled:.1f}{unit}"
    return f"{value:.1f}" if 0 < value < 10 and value != int(value) else f"{value:,.0f}"


def per_second(value: float | None) -> str:
    """`1,234/s`."""
    return "-" if value is None else f"{count(value)}/s"


def milliseconds(value: float | None) -> str:
    """`0.4 ms`, `12 ms`, `3.4 s`."""
    if value is None:
        return "-"
    if value >= 1000:
        return duration(value / 1000)
    return f"{value:.1f} ms" if value < 10 else f"{value:.0f} ms"


def duration(value: float | None) -> str:
    """`4.2 s`, `90 s`, `12 min`, `30 h`, `3 days`."""
    if value is None:
        return "-"
    if value < 120:
        return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
    for limit, divisor, unit in ((7200, 60, "min"), (172_800, 3600, "h")):
        if value < limit:
            return f"{value / divisor:.0f} {unit}"
    return f"{value / 86_400:.0f} days"


def clock(text: object) -> str:
    """A time in RFC 3339 as local time; the day only when it is not today's."""
    try:
        at = datetime.fromisoformat(str(text)).astimezone()
    except ValueError:
        return str(text)
    same_day = at.date() == datetime.now(at.tzinfo).date()
    return at.strftime("%H:%M:%S" if same_day else "%Y-%m-%d %H:%M:%S")
