"""How fast a stream grows, seen from outside: its state is asked for again and again over another connection."""

from __future__ import annotations

import time
from dataclasses import dataclass

from benchmarks.errors import BenchmarkError
from benchmarks.raw_socket import RawSocket

__all__ = ["INTERVAL", "Growth", "watch_growth"]

INTERVAL = 0.005
"""Seconds between two looks."""

_PATIENCE = 60.0  # seconds without growth after which nothing more is expected


@dataclass(frozen=True, slots=True)
class Growth:
    """What was seen.

    Attributes:
        first: when the first messages were seen, in seconds of the monotonic clock.
        there: how many these were.
        last: when all were there.
        messages: how many these were.
    """

    first: float
    there: int
    last: float
    messages: int

    @property
    def rate(self) -> float:
        """Messages per second from the first look that found any to the last.

        Raises:
            BenchmarkError: all came between two looks.
        """
        if self.last <= self.first:
            raise BenchmarkError(f"all {self.messages:,} messages were there at the first look: too few to measure")
        return (self.messages - self.there) / (self.last - self.first)


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
        first, there, before, grew = 0.0, 0, 0, time.monotonic()
        while True:
            state = connection.request(f"$JS.API.STREAM.INFO.{stream}")["state"]
            now, found = time.monotonic(), int(state["messages"])
            if found > before:
                before, grew = found, now
                if not there:
                    first, there = now, found
            if found >= messages:
                break
            if now - grew > _PATIENCE:
                raise BenchmarkError(f"{stream}: {found:,} of {messages:,} messages came, then none for a minute")
            time.sleep(INTERVAL)
    if found > messages:
        raise BenchmarkError(f"{stream}: holds {found:,} messages, which is more than the {messages:,} there are")
    if subjects and state["num_subjects"] != subjects:
        raise BenchmarkError(f"{stream}: has {state['num_subjects']:,} subjects instead of {subjects:,}")
    return Growth(first, there, now, messages)
