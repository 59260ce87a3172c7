"""Counters of a reader: plain integers."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Final

READING_FACTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "repeated": "redelivered",
        "lost": "lost",
        "recovered": "recovered",
        "recreated_streams": "source_recreated",
        "recreated_consumers": "consumer_recreated",
        "reconnects": "resumed",
    }
)
"""Counters that have a separate metric, with its short name; see `rule_kinds.Meanings`."""


@dataclass(slots=True)
class Counters:
    """The counters of a rule, as integer fields."""

    def as_dict(self) -> dict[str, int]:
        """Return all counts by name."""
        # Called for every rule every few seconds; `asdict` would deep-copy each number.
        return {counter.name: getattr(self, counter.name) for counter in fields(self)}


@dataclass(slots=True)
class ReaderCounters(Counters):
    """The counters of a reader, in messages unless the name says otherwise.

    Attributes:
        received: taken from the stream.
        repeated: delivered again by the server and dropped, because they had been handled.
        gaps: how often deliveries were missing.
        recovered: missing deliveries that were read again from the stream.
        lost: missing deliveries that the stream no longer holds.
        reconnects: how often the rule resumed after a lost connection.
        recreated_consumers: how often the rule's consumer had been deleted and was recreated.
        recreated_streams: how often the stream itself was recreated.
        shorter_streams: how often the server had lost the end of the stream.
    """

    received: int = 0
    repeated: int = 0
    gaps: int = 0
    recovered: int = 0
    lost: int = 0
    reconnects: int = 0
    recreated_consumers: int = 0
    recreated_streams: int = 0
    shorter_streams: int = 0
