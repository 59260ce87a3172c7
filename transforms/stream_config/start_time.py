"""Times in a configuration: RFC 3339 as the server reads it, and as it writes it back."""

from __future__ import annotations

import datetime
import re

_LAYOUT = "2006-01-02T15:04:05Z07:00"
_PIECES = (
    ("2006", re.compile(r"\d{4}")),
    ("-", re.compile(r"-")),
    ("01", re.compile(r"\d\d")),
    ("-", re.compile(r"-")),
    ("02", re.compile(r"\d\d")),
    ("T", re.compile(r"T")),
    ("15", re.compile(r"\d\d")),
    (":", re.compile(r":")),
    ("04", re.compile(r"\d\d")),
    (":", re.compile(r":")),
    ("05", re.compile(r"\d\d(?:\.\d+)?")),
    ("Z07:00", re.compile(r"Z|[+-]\d\d:\d\d")),
)
_TIME = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)T(?P<clock>\d\d:\d\d:\d\d)(?:\.(?P<fraction>\d+))?(?P<zone>Z|[+-]\d\d:\d\d)",
    re.ASCII,
)


class InvalidTimeError(ValueError):
    """Not a time; the text is the server's."""


def normal_time(text: str) -> str:
    """The time as the server writes it back: nanoseconds without trailing zeros, ``Z`` for a zero offset.

    Raises:
        InvalidTimeError: not RFC 3339, or a date that does not exist.
    """
    parsed = _TIME.fullmatch(text)
    if parsed is None:
        raise InvalidTimeError(_complaint(text))
    _check_ranges(text, parsed)
    fraction = (parsed["fraction"] or "")[:9].rstrip("0")
    zone = "Z" if parsed["zone"] in ("Z", "+00:00", "-00:00") else parsed["zone"]
    return f"{parsed['date']}T{parsed['clock']}{'.' if fraction else ''}{fraction}{zone}"


def _complaint(text: str) -> str:
    at = 0
    for piece, pattern in _PIECES:
        found = pattern.match(text, at)
        if found is None:
            return f'parsing time "{text}" as "{_LAYOUT}": cannot parse "{text[at:]}" as "{piece}"'
        at = found.end()
    return f'parsing time "{text}": extra text: "{text[at:]}"'


def _check_ranges(text: str, parsed: re.Match[str]) -> None:
    year, month, day = map(int, parsed["date"].split("-"))
    hour, minute, second = map(int, parsed["clock"].split(":"))
    wrong = ""
    if not 1 <= month <= 12:
        wrong = "month"
    elif not 1 <= day <= _days(year, month):
        wrong = "day"
    elif hour > 23:
        wrong = "hour"
    elif minute > 59:
        wrong = "minute"
    elif second > 59:
        wrong = "second"
    if wrong:
        raise InvalidTimeError(f'parsing time "{text}": {wrong} out of range')


def _days(year: int, month: int) -> int:
    if month == 12:
        return 31
    # Year 0 has the calendar of every leap century; the library's dates begin at 1.
    first = datetime.date(year or 400, month, 1)
    return (first.replace(month=month + 1) - first).days
