"""What the counters of each kind of rule mean to somebody who knows no kind: taken, sent, dropped and why, and so on.

One table. Status, metrics and traces read it, so that a counter that is added to a kind shows everywhere; a test holds
it to the counters that there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

__all__ = ["MEANINGS", "RECEIVED", "Meanings"]

RECEIVED = "received"
"""The counter of messages that a rule has taken, in every kind."""

_INTAKE_FACTS = {
    "repeated": "redelivered",
    "lost": "lost",
    "recovered": "recovered",
    "recreated_streams": "source_recreated",
    "recreated_consumers": "consumer_recreated",
    "reconnects": "resumed",
}


@dataclass(frozen=True, slots=True)
class Meanings:
    """How to read the counters of one kind.

    Attributes:
        sent: the counter of messages that went on to the target, each once.
        dropped: counters of messages that did not, with the reason.
        facts: other counters of messages or occurrences that have a metric of their own, with its short name.
        events: all that is left: counted occurrences without a metric of their own.
    """

    sent: str
    dropped: Mapping[str, str]
    facts: Mapping[str, str]
    events: tuple[str, ...]


_COPYING = Meanings(
    sent="copied",
    dropped={"unselected": "unselected", "rejected": "rejected"},
    facts=_INTAKE_FACTS
    | {
        "duplicates": "duplicate",
        "asked_again": "resent",
        "withheld_headers": "headers_stripped",
        "out_of_order": "out_of_order",
    },
    events=("gaps", "already_there", "renamed_headers", "assumed_increments", "waits", "rounds", "fillers"),
)

MEANINGS: Mapping[str, Meanings] = MappingProxyType(
    {
        "republish": Meanings(
            sent="republished",
            dropped={name: name for name in ("unmatched", "suppressed", "looped", "too_large")},
            facts=_INTAKE_FACTS | {"in_doubt": "in_doubt", "repeated_out": "resent", "vanished": "vanished"},
            events=("gaps", "last_sequence_lookups", "last_sequence_uncertain", "removals"),
        ),
        "sources": _COPYING,
        "mirror": _COPYING,
        "kv_sources": _COPYING,
        "subject_transform": Meanings(
            sent="passed_on",
            dropped={name: name for name in ("refused", "overloaded", "too_large")},
            facts={"in_doubt": "in_doubt", "repeated_out": "resent", "reconnects": "resumed"},
            events=("answered", "pauses"),
        ),
        "advisories": Meanings(
            sent="republished",
            dropped={
                "unmatched": "unmatched",
                "suppressed": "suppressed",
                "looped": "looped",
                "refused": "refused",
                "dropped": "overloaded",
            },
            facts={
                "in_doubt": "in_doubt",
                "repeated_out": "resent",
                "duplicates": "duplicate",
                "reconnects": "resumed",
            },
            # Too large with its message: the advisory is published without it.
            events=("attached", "messages_gone", "too_large", "stored"),
        ),
    }
)
"""By the `kind` of a rule."""
