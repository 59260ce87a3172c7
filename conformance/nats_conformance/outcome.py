"""The outcome of a case, with its mismatches."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """How a case ended for a subject of test."""

    PASS = "pass"
    FAIL = "fail"
    DIFFERENCE = "observed difference"
    """The version is known to differ here, and does, in the way that is known."""
    DIVERGENCE = "known divergence"
    """What an outside process cannot know or do; the verdict names its id."""
    SKIPPED = "skipped"
    """It applies and was not played; the verdict holds the reason."""
    ERRORED = "errored"
    """It could not be played, or the subject of test did not answer."""
    INAPPLICABLE = "not applicable"
    """The case is about other versions, or about what the subject of test does not offer."""

    @property
    def is_good(self) -> bool:
        """Whether the outcome is good."""
        return self not in (Outcome.FAIL, Outcome.ERRORED)


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One mismatch, as texts.

    ``where`` is such as ``received[2].headers`` or ``decision``.
    """

    where: str
    expected: str
    observed: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judge's result for one case and one subject of test.

    ``reason`` explains every outcome but a pass; ``divergences`` holds ids of known divergences that were met.
    """

    outcome: Outcome
    reason: str = ""
    mismatches: tuple[Mismatch, ...] = ()
    divergences: tuple[str, ...] = ()
