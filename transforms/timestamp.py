"""Times as the server writes them into headers."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

__all__ = ["rfc3339_nano"]

_SECOND = 1_000_000_000


def rfc3339_nano(nanoseconds: int) -> bytes:
    """A time in nanoseconds since 1970 (UTC) as RFC 3339 text ending in ``Z``.

    Up to nine digits of fraction, trailing zeros cut, no dot at a whole second (``Nats-Time-Stamp``, 2.10
    and newer).
    """
    seconds, fraction = divmod(nanoseconds, _SECOND)
    if not fraction:
        return _second(seconds) + b"Z"
    return b"%b.%bZ" % (_second(seconds), (b"%09d" % fraction).rstrip(b"0"))


@lru_cache(maxsize=256)
def _second(seconds: int) -> bytes:
    # A stream's messages come in runs of the same second, so the calendar is consulted once per second.
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0").encode()
