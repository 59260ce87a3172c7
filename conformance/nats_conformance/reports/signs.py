"""The words and signs of outcomes, in one order, for every report."""

from collections.abc import Mapping
from dataclasses import dataclass

from nats_conformance.outcome import Outcome

NO_RECORD = "?"
"""The sign of a case that is not in the history."""


@dataclass(frozen=True, slots=True)
class Sign:
    """A word for tables, a sign for cells, and the meaning."""

    word: str
    sign: str
    meaning: str


SIGNS: Mapping[Outcome, Sign] = {
    Outcome.PASS: Sign("pass", "✓", "as the clause says"),
    Outcome.DIFFERENCE: Sign(
        "difference", "≠", "this version is known to differ, and does so in the way that is known"
    ),
    Outcome.DIVERGENCE: Sign("divergence", "≈", "what a process outside of the server cannot know or do"),
    Outcome.SKIPPED: Sign("skipped", "↷", "it applies and was not played"),
    Outcome.ERRORED: Sign("errored", "!", "it could not be played"),
    Outcome.FAIL: Sign("fail", "✗", "not as expected"),
    Outcome.INAPPLICABLE: Sign("n/a", "·", "the case is not about this version, or not about this kind of subject"),
}
"""In the order of counting in reports."""
