"""Facts about the streams that rules name, which narrow permissions; optional."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """The facts about a stream that permissions depend on.

    Attributes:
        subjects: the subjects that it stores.
        retention: `limits`, `interest` or `workqueue`.
        counts_copies: whether a copying rule that is its only writer may confirm copies in groups; it then also
            receives messages of other clients.
    """

    subjects: tuple[str, ...]
    retention: str
    counts_copies: bool


KnownStreams: TypeAlias = Mapping[tuple[str, str], StreamFacts]
"""By connection and stream name; streams without facts are missing."""
