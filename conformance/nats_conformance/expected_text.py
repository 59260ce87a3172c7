"""Compares expected bytes with placeholders: `<time>`, `<identity>`, `<int A..B>`."""

import re
from functools import lru_cache

_PLACEHOLDER = re.compile(rb"<(time|identity|int (-?[0-9]+)\.\.(-?[0-9]+))>")
_TIME = rb"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{0,8}[1-9])?Z"
_IDENTITY = rb"[0-9A-Za-z]{8}"
_INTEGER = rb"(0|-?[1-9][0-9]{0,18})"
"""Numbers as servers write them: no leading zeros, at most 64 bits."""


def without_placeholders(expected: bytes) -> bytes:
    """Return the expected bytes without their placeholders."""
    return _PLACEHOLDER.sub(b"", expected)


def matches_text(expected: bytes, observed: bytes) -> bool:
    """Return whether the observed bytes match the expected ones with their placeholders."""
    if expected == observed:
        return True
    pattern, ranges = _compiled(expected)
    found = pattern.fullmatch(observed)
    if found is None:
        return False
    return all(low <= int(text) <= high for text, (low, high) in zip(found.groups(), ranges, strict=True))


@lru_cache(maxsize=4096)
def _compiled(expected: bytes) -> tuple[re.Pattern[bytes], tuple[tuple[int, int], ...]]:
    parts: list[bytes] = []
    ranges: list[tuple[int, int]] = []
    end = 0
    for found in _PLACEHOLDER.finditer(expected):
        parts.append(re.escape(expected[end : found.start()]))
        if found[1] == b"time":
            parts.append(_TIME)
        elif found[1] == b"identity":
            parts.append(_IDENTITY)
        else:
            parts.append(_INTEGER)
            ranges.append((int(found[2]), int(found[3])))
        end = found.end()
    parts.append(re.escape(expected[end:]))
    return re.compile(b"".join(parts), re.DOTALL), tuple(ranges)
