"""Times as the server writes them into headers."""

from datetime import UTC, datetime
from functools import lru_cache

_SECOND = 1_000_000_000


def rfc3339_nano(nanoseconds: int) -> bytes:
    """Format a time in nanoseconds since 1970 (UTC) as RFC 3339 text ending in `Z`.

    The fraction has up to nine digits without trailing zeros; a whole second has no dot (`Nats-Time-Stamp`, from 2.10
    on).
    """
    seconds, fraction = divmod(nanoseconds, _SECOND)
    if not fraction:
        return _second(seconds) + b"Z"
    return b"%b.%bZ" % (_second(seconds), (b"%09d" % fraction).rstrip(b"0"))


def nanoseconds_of(text: str) -> int:
    """Nanoseconds since 1970 of an RFC 3339 time in UTC, with up to nine digits of fraction.

    Raises:
        ValueError: it is not such a time.
    """
    if not text.endswith("Z"):
        raise ValueError(f"not a time in UTC: {text!r}")
    second, _, fraction = text[:-1].partition(".")
    moment = datetime.strptime(second, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    return int(moment.timestamp()) * _SECOND + int(f"{fraction:0<9}"[:9])


@lru_cache(maxsize=256)
def _second(seconds: int) -> bytes:
    # A stream's messages come in runs of the same second, so the calendar is consulted once per second.
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0").encode()
