"""Runs one comparison, on either engine.

Both sides become digests that are joined by identity (`matching`). The order of the common messages is compared by
their sequences (`findings`). Messages whose digests differ are fetched and compared (`findings`).
"""

from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa

from nats_bridge_spark.diff.comparing import Comparison
from nats_bridge_spark.diff.deciding import decided
from nats_bridge_spark.diff.findings import FINDINGS, Finding, odd_findings, order_findings, overview_of, sequences_in
from nats_bridge_spark.diff.matching import Counts, counts, matched
from nats_bridge_spark.diff.rows import Batches, Rows
from nats_bridge_spark.diff.side_by_side import read_in_blocks
from nats_bridge_spark.diff.sides import DiffEngine, Side, SideLocation
from nats_bridge_spark.errors import OptionError, PipelineError
from nats_bridge_spark.progress import Progress
from nats_bridge_spark.subject_batch import by_subject
from nats_transforms.republish import Republish
from nats_transforms.sourcing import Sourcing


@dataclass(frozen=True, slots=True)
class DiffResult:
    """The result.

    Attributes:
        reason: the reason for the chosen identity; empty if the user chose it.
        findings: all findings, with the columns `findings.FINDINGS`; readable while the engine is open.
        kinds: how many findings there are of each kind.
        headers: how many messages differ in a header, by its name; the most frequent ones.
    """

    left: Side
    right: Side
    comparison: Comparison
    reason: str
    counts: Counts
    allowed: frozenset[str]
    findings: Rows
    kinds: dict[str, int]
    headers: dict[str, int]
    examples: dict[str, list[Finding]]

    @property
    def left_out(self) -> tuple[int, int]:
        """The messages of the left and of the right that were not compared: not copied by the rule, or not from it."""
        return self.left.messages - self.counts.left, self.right.messages - self.counts.right

    @property
    def is_equal(self) -> bool:
        """Whether all findings are allowed ones."""
        return not any(number for kind, number in self.kinds.items() if kind not in self.allowed)


_SUBJECTS: Final = pa.schema([("subject", pa.binary()), ("sequence", pa.int64())])


def compared(
    engine: DiffEngine,
    left: SideLocation,
    right: SideLocation,
    wanted: Comparison,
    allowed: frozenset[str],
    progress: Progress,
) -> DiffResult:
    """Compare two sides. The findings can be read as long as the engine is open.

    Raises:
        OptionError: nothing identifies messages, or the options do not go together.
        PipelineError: a side cannot be read or is empty, or the sides have no message in common.
    """
    if left == right:
        raise OptionError(f"both sides are the same: {left.shown}; name two streams or captures, or two ranges of one")
    if (blocks := read_in_blocks(engine, left, right, wanted, progress)) is not None:
        here, there, comparison, reason = blocks
    else:
        # The right first: then the left has all that a copier has brought until then.
        progress.enter("reading the right side")
        there = Side.of(right, engine.opened(right, progress))
        progress.enter("reading the left side")
        here = Side.of(left, engine.opened(left, progress))
        comparison, reason = decided(here, there, wanted)
    by, equal = comparison.by, here.equal
    messages = here.messages + there.messages
    lefts, rights = here.rows, there.rows
    if equal == here.messages == there.messages:
        progress.messages = messages
        found = Counts(equal, equal, equal, equal, odd=0, several=0, ignored={})
        none = lefts.mapped(_nothing, FINDINGS)
        return DiffResult(here, there, comparison, reason, found, allowed, none, {}, {}, {})
    if by == "subject":
        lefts, rights = _newest(lefts, comparison.rule), _newest(rights)
    progress.enter("bringing both sides together", total=messages)
    matches = matched(lefts, rights, comparison)
    counted = counts(matches, comparison, equal)
    if not counted.common:
        hint = (
            "; give --source NAME if the left stream has another name there, --by sequence for a restored stream, or"
            " --by subject for buckets"
        )
        why = f"{left.shown} and {right.shown} have no message in common by {by}"
        raise PipelineError(why + hint if by == "provenance:right" else why)
    if by in ("sequence", "subject"):
        findings = matches.mapped(_nothing, FINDINGS)
    else:
        progress.enter("comparing the order", total=counted.common)
        findings = order_findings(matches).kept()
    progress.enter("reading what differs", total=counted.odd)
    if counted.odd:
        findings = findings.united(odd_findings(lefts, rights, matches, comparison, several=counted.several > 0))
    findings = findings.kept()
    progress.messages = messages
    return DiffResult(here, there, comparison, reason, counted, allowed, findings, *overview_of(findings))


def _nothing(_: Batches) -> Batches:
    yield from ()


def _newest(rows: Rows, rule: Sourcing | Republish | None = None) -> Rows:
    named = rows.selected("subject", "sequence")
    if rule is not None:
        named = named.mapped(partial(_renamed, rule), _SUBJECTS)
    newest = sequences_in(named.grouped(["subject"], [("sequence", "max")]), "sequence_max")
    return rows.having(newest.kept(), ["sequence"])


def _renamed(rule: Sourcing | Republish, batches: Batches) -> Batches:
    for batch in batches:
        made = by_subject(rule.destination, batch.column("subject"), pa.binary())
        yield pa.RecordBatch.from_arrays([made, batch.column("sequence")], schema=_SUBJECTS).filter(made.is_valid())
