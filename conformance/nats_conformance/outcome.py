"""The outcome of a case, with its mismatches."""

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """The outcome of a case on a test subject."""

    PASS = "pass"
    FAIL = "fail"
    DIFFERENCE = "observed difference"
    """The version is known to differ here, and differs as expected."""
    DIVERGENCE = "known divergence"
    """A difference that an outside process cannot avoid; the verdict has its id."""
    SKIPPED = "skipped"
    """The case applies but did not run; the verdict has the reason."""
    ERRORED = "errored"
    """It could not be played, or the subject of test did not answer."""
    INAPPLICABLE = "not applicable"
    """The case is about other versions, or about features that the test subject lacks."""

    @property
    def is_good(self) -> bool:
        """Whether the outcome is good."""
        return self not in (Outcome.FAIL, Outcome.ERRORED)


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One mismatch, as texts.

    `where` is a path such as `received[2].headers` or `decision`.
    """

    where: str
    expected: str
    observed: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judge's result for one case and one subject of test.

    `reason` explains every outcome except a pass. `divergences` are the ids of known divergences that occurred.
    """

    outcome: Outcome
    reason: str = ""
    mismatches: tuple[Mismatch, ...] = ()
    divergences: tuple[str, ...] = ()
