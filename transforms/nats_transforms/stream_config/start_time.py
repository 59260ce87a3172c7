"""Reads and writes times in a configuration: RFC 3339 like the server (Go's `time`, 2.9 to 2.15)."""

import datetime
import re

_LAYOUT = "2006-01-02T15:04:05Z07:00"
_PIECES = (
    ("2006", r"\d{4}", "year", 9999),
    ("-", "-", "", 0),
    ("01", r"\d\d", "month", 12),
    ("-", "-", "", 0),
    ("02", r"\d\d", "day", 99),
    ("T", "T", "", 0),
    ("15", r"\d\d?", "hour", 23),
    (":", ":", "", 0),
    ("04", r"\d\d", "minute", 59),
    (":", ":", "", 0),
    ("05", r"\d\d", "second", 59),
)
"""Each piece: its name in the server's layout, its form, and the number that it is, with the highest."""
_FRACTION = re.compile(r"[.,](\d+)|", re.ASCII)
_ZONE = re.compile(r"Z|([+-])(\d\d):(\d\d)", re.ASCII)
_NO_ASCII = re.compile("[^ -\x7f]")
_DAY = 24 * 60


class InvalidTimeError(ValueError):
    """The text is not a time; the message is the server's."""


class UnwritableTimeError(InvalidTimeError):
    """A time that the server reads and cannot write: its offset is a day or more."""


def normal_time(text: str) -> str:
    """Return the time as the server writes it back: nanoseconds without trailing zeros, and `Z` for a zero offset.

    Like the server, it accepts an hour of one digit, a comma for the point, and an offset with 60 minutes.

    Raises:
        InvalidTimeError: not RFC 3339, or a date that does not exist.
        UnwritableTimeError: an offset of 24 hours or more.
    """
    at = 0
    numbers: dict[str, int] = {}
    for piece, form, name, highest in _PIECES:
        found = re.compile(form, re.ASCII).match(text, at)
        if found is None:
            raise _unreadable(text, at, piece)
        at = found.end()
        if name:
            numbers[name] = int(found[0])
            if numbers[name] > highest or (name == "month" and not numbers[name]):
                raise _out_of_range(text, name)
    fraction = _FRACTION.match(text, at)
    assert fraction is not None  # it also matches the empty string
    zone = _ZONE.match(text, fraction.end())
    if zone is None:
        raise _unreadable(text, fraction.end(), "Z07:00")
    sign, hours, minutes = zone[1] or "+", int(zone[2] or 0), int(zone[3] or 0)
    if hours > 24 or minutes > 60:
        raise _out_of_range(text, f"time zone offset {'minute' if minutes > 60 else 'hour'}")
    if zone.end() < len(text):
        raise InvalidTimeError(f"parsing time {_quoted(text)}: extra text: {_quoted(text[zone.end() :])}")
    if not 1 <= numbers["day"] <= _days(numbers["year"], numbers["month"]):
        raise _out_of_range(text, "day")
    offset = 60 * hours + minutes
    if offset >= _DAY:
        raise UnwritableTimeError(f"{_quoted(text)}: timezone hour outside of range [0,23]")
    clock = "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}".format(**numbers)
    nanoseconds = f".{(fraction[1] or '')[:9]}".rstrip("0").rstrip(".")
    return f"{clock}{nanoseconds}{f'{sign}{offset // 60:02}:{offset % 60:02}' if offset else 'Z'}"


def _unreadable(text: str, at: int, piece: str) -> InvalidTimeError:
    return InvalidTimeError(
        f'parsing time {_quoted(text)} as "{_LAYOUT}": cannot parse {_quoted(text[at:])} as "{piece}"'
    )


def _out_of_range(text: str, what: str) -> InvalidTimeError:
    return InvalidTimeError(f"parsing time {_quoted(text)}: {what} out of range")


def _quoted(text: str) -> str:
    # Go's `time` escapes other bytes than ASCII one by one.
    shown = re.sub(r'(["\\])', r"\\\1", text)
    return '"' + _NO_ASCII.sub(lambda found: "".join(map("\\x{:02x}".format, found[0].encode())), shown) + '"'


def _days(year: int, month: int) -> int:
    if month == 12:
        return 31
    # Year 0 has the calendar of every leap century, but the library's dates begin at 1.
    first = datetime.date(year or 400, month, 1)
    return (first.replace(month=month + 1) - first).days
