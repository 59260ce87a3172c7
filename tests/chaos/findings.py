"""The checker's findings, and its judgement of a rule."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

What: TypeAlias = Literal[
    "lost",
    "duplicated",
    "reordered",
    "wrong subject",
    "wrong headers",
    "wrong bytes",
    "wrong sum",
    "invented",
    "stuck",
    "ended",
    "refused",
]
Verdict: TypeAlias = Literal["violation", "unknown", "allowed"]
"""`allowed`: the promise allows it, here and now; `unknown`: its cause cannot be determined."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A deviation from what a run without faults shows.

    Attributes:
        what: what is wrong.
        verdict: whether it breaks the rule's promise.
        detail: which message, and what was expected.
        at: when, in seconds since the start; None if unknown.
    """

    what: What
    verdict: Verdict
    detail: str
    at: float | None = None


@dataclass(slots=True)
class Judgement:
    """A rule, judged.

    Attributes:
        rule: its name.
        kind: its kind.
        promise: what it promised.
        expected: messages that should have come through.
        seen: messages that did.
        findings: what was not as it should be.
    """

    rule: str
    kind: str
    promise: str
    expected: int = 0
    seen: int = 0
    findings: list[Finding] = field(default_factory=list)

    def add(self, what: What, verdict: Verdict, detail: str, at: float | None = None) -> None:
        """One more finding."""
        self.findings.append(Finding(what, verdict, detail, at))

    @property
    def violations(self) -> list[Finding]:
        """The findings that break the promise."""
        return [finding for finding in self.findings if finding.verdict == "violation"]

    @property
    def counts(self) -> dict[str, int]:
        """The number of findings per kind and verdict, such as `lost (allowed)`."""
        return dict(Counter(f"{each.what} ({each.verdict})" for each in self.findings))
