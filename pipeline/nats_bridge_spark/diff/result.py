"""The result of a comparison, whichever engine made it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from nats_bridge_spark.diff.comparing import Comparison, Ignored
from nats_bridge_spark.diff.findings import Finding
from nats_bridge_spark.diff.request import SideLocation
from nats_bridge_spark.errors import PipelineError, SchemaError

Findings = TypeVar("Findings")


@dataclass(frozen=True, slots=True)
class Extent:
    """A side of a comparison, as a whole.

    Attributes:
        place: where the messages are.
        stream: the name of the stream that they are of; empty where that is unknown.
        messages: how many there are.
        first: the lowest sequence.
        last: the highest one.
    """

    place: SideLocation
    stream: str
    messages: int
    first: int
    last: int

    def require_one_stream(self, numbered: int, highest: str) -> None:
        """Check a side's rows.

        Args:
            numbered: how many of them have a sequence.
            highest: the last of the names of streams in them, of which `stream` is the first.

        Raises:
            PipelineError: there are none, or they are of several streams.
        """
        shown = self.place.shown
        if not self.messages:
            raise PipelineError(f"{shown}: there are no messages{_of_what(self.place)}")
        if numbered != self.messages:
            raise SchemaError(f"{shown}: {self.messages - numbered} rows have no sequence")
        if self.stream != highest:
            raise PipelineError(
                f"{shown}: holds messages of several streams, such as {self.stream} and {highest}; a side is one"
            )


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts, in messages of either side and in identities.

    Attributes:
        left: messages of the left that were compared, unidentified ones included.
        right: those of the right.
        equal: identities with one equal message on either side.
        common: identities that both sides have.
        odd: identities that must be compared by their full messages.
        duplicated: identities of which a side has more than one message.
        ignored: what was left out of the comparison: in how many messages of the left, and of the right.
    """

    left: int
    right: int
    equal: int
    common: int
    odd: int
    duplicated: int
    ignored: dict[Ignored, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class DiffResult(Generic[Findings]):
    """The result.

    Attributes:
        left: the left side.
        right: the right one.
        comparison: what was compared.
        reason: why messages are identified as they are; empty where the user said so.
        counts: messages, identities, what was ignored.
        left_out: messages of the left and of the right that were not compared: those that the rule does not copy, and
            those of other sources.
        kinds: how many findings there are of each kind.
        headers: how many there are of each kind and header, the most frequent ones.
        examples: the first ones of each kind.
        order_is_exact: whether the messages out of order are the fewest that would have to be moved.
        allowed: kinds that are no difference.
        findings: all of them, with the columns `details.FINDINGS`; to be read while the comparison is open.
    """

    left: Extent
    right: Extent
    comparison: Comparison
    reason: str
    counts: Counts
    left_out: tuple[int, int]
    kinds: dict[str, int]
    headers: dict[tuple[str, str], int]
    examples: dict[str, tuple[Finding, ...]]
    order_is_exact: bool
    allowed: frozenset[str]
    findings: Findings = field(repr=False)

    @property
    def is_equal(self) -> bool:
        """Whether there are no findings but allowed ones."""
        return not any(number for kind, number in self.kinds.items() if kind not in self.allowed)


def _of_what(place: SideLocation) -> str:
    bounds = []
    if place.first is not None or place.last is not None:
        bounds.append(f"with sequences {place.first or 1} to {place.last or 'the end'}")
    if place.subjects:
        bounds.append(f"with subjects {', '.join(place.subjects)}")
    return " " + " ".join(bounds) if bounds else ""
