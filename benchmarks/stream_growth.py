"""How fast a stream grew: its state is polled until it holds everything, and holds when the first and the last were
stored.

The times are the server's own stamps. The polling interval only decides how soon the end is noticed: a busy server can
be a second late with its answer.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from benchmarks.errors import BenchmarkError
from benchmarks.raw_socket import RawSocket

_INTERVAL = 0.02  # seconds between two requests
_PATIENCE = 60.0  # seconds without growth after which nothing more is expected


@dataclass(frozen=True, slots=True)
class Growth:
    """What a stream that was empty got.

    Attributes:
        first: when the first message was stored, in seconds since 1970.
        last: when the last one was.
        messages: how many there are.
    """

    first: float
    last: float
    messages: int

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Self:
        """Read the `state` that STREAM.INFO gives."""
        return cls(unix_seconds(state["first_ts"]), unix_seconds(state["last_ts"]), int(state["messages"]))

    @property
    def rate(self) -> float:
        """Messages per second from the first to the last.

        Raises:
            BenchmarkError: there is no time between them.
        """
        if self.last <= self.first:
            raise BenchmarkError(f"{self.messages:,} messages were stored at once: too few to measure")
        return (self.messages - 1) / (self.last - self.first)


def unix_seconds(stamp: str) -> float:
    """A time stamp as servers and the sidecar's log write it (RFC 3339), to the microsecond."""
    return datetime.fromisoformat(stamp).timestamp()


def watch_growth(port: int, stream: str, messages: int, *, subjects: int = 0) -> Growth:
    """Wait until a stream holds so many messages.

    Args:
        port: of its server.
        stream: its name.
        messages: how many it will hold.
        subjects: how many different subjects they must have in the end; 0 for any number.

    Raises:
        BenchmarkError: it holds more, or other subjects, or does not grow any more.
    """
    with RawSocket(port) as connection:
        before, grew = 0, time.monotonic()
        while True:
            state = connection.request(f"$JS.API.STREAM.INFO.{stream}")["state"]
            now, found = time.monotonic(), int(state["messages"])
            if found >= messages:
                break
            if found > before:
                before, grew = found, now
            if now - grew > _PATIENCE:
                raise BenchmarkError(f"{stream}: {found:,} of {messages:,} messages came, then none for a minute")
            time.sleep(_INTERVAL)
    if found > messages:
        raise BenchmarkError(f"{stream}: holds {found:,} messages, which is more than the {messages:,} there are")
    if subjects and state["num_subjects"] != subjects:
        raise BenchmarkError(f"{stream}: has {state['num_subjects']:,} subjects instead of {subjects:,}")
    return Growth.of(state)
