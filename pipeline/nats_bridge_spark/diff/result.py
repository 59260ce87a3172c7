"""The result of a comparison, whichever engine made it."""

from __future__ import annotations

from dataclasses import dataclass, field

from nats_bridge_spark.diff.comparing import Comparison
from nats_bridge_spark.diff.findings import Finding
from nats_bridge_spark.diff.matching import Counts
from nats_bridge_spark.diff.rows import Rows
from nats_bridge_spark.diff.sides import Side


@dataclass(frozen=True, slots=True)
class DiffResult:
    """The result.

    Attributes:
        left: the left side.
        right: the right one.
        comparison: the comparison.
        reason: the reason for the chosen identity; empty if the user chose it.
        counts: the numbers of messages, identities, and omissions.
        left_out: messages of the left and of the right that were not compared: those that the rule does not copy, and
            those of other sources.
        kinds: how many findings there are of each kind.
        headers: how many messages differ in a header, by its name; the most frequent ones.
        examples: the first ones of each kind.
        allowed: kinds that do not count as differences.
        findings: all findings, with the columns `findings.FINDINGS`; readable while the engine is open.
    """

    left: Side
    right: Side
    comparison: Comparison
    reason: str
    counts: Counts
    left_out: tuple[int, int]
    kinds: dict[str, int]
    headers: dict[str, int]
    examples: dict[str, list[Finding]]
    allowed: frozenset[str]
    findings: Rows = field(repr=False)

    @property
    def is_equal(self) -> bool:
        """Whether all findings are allowed ones."""
        return not any(number for kind, number in self.kinds.items() if kind not in self.allowed)
