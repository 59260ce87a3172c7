"""What an outside process cannot know or do: taken out of both sides before they are compared again.

Each entry has the id under which ``docs/known-divergences.md`` explains it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from conformance.catalogue.case import Case, Expectation
from conformance.observation import Observation
from conformance.outcome import Mismatch
from conformance.subjects.identity import Identity

__all__ = ["reconciled"]

Compare: TypeAlias = Callable[[Expectation, Observation], Iterable[Mismatch]]


def reconciled(
    case: Case, subject: Identity, expectation: Expectation, observation: Observation, compare: Compare
) -> tuple[tuple[str, ...], tuple[Mismatch, ...]]:
    """The ids of the known divergences that were met, and what is left that none explains."""
    remaining = tuple(compare(expectation, observation))
    if remaining and case.kd:
        return case.kd, ()
    return (), remaining
