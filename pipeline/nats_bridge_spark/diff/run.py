"""Runs one comparison, on either engine, with the identity that the user or a sample of messages decides.

Both sides become digests that are joined by identity (`matching`). The order of the common messages is compared by
their sequences (`findings`). Messages whose digests differ are fetched and compared (`findings`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import pyarrow as pa

from nats_bridge_spark.capture.parquet_files import within
from nats_bridge_spark.diff.comparing import By, Comparison
from nats_bridge_spark.diff.findings import FINDINGS, Finding, odd_findings, order_findings, overview_of, sequences_in
from nats_bridge_spark.diff.matching import Counts, counts, matched
from nats_bridge_spark.diff.provenance import provenance, same_source
from nats_bridge_spark.diff.rows import Batches, Rows
from nats_bridge_spark.diff.sides import OpenSide, Side, SideLocation
from nats_bridge_spark.errors import OptionError, PipelineError
from nats_bridge_spark.progress import Progress
from nats_bridge_spark.subject_batch import by_subject
from nats_transforms import header_block
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


_SAMPLE: Final = 200  # messages
_MOST: Final = 0.9  # of the sample
_PAYLOADS: Final = pa.schema([("sequence", pa.int64()), ("data", pa.binary())])
_SUBJECTS: Final = pa.schema([("subject", pa.binary()), ("sequence", pa.int64())])


def compared(
    opened: OpenSide,
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
    # The right first: then the left has all that a copier has brought until then.
    progress.enter("reading the right side")
    there = Side.of(right, opened(right, progress))
    progress.enter("reading the left side")
    here = Side.of(left, opened(left, progress))
    comparison, reason = _decided(here, there, wanted)
    by = comparison.by
    messages = here.messages + there.messages
    lefts, rights = here.rows, there.rows
    if by == "subject":
        lefts, rights = _newest(lefts, comparison.rule), _newest(rights)
    progress.enter("bringing both sides together", total=messages)
    matches = matched(lefts, rights, comparison)
    counted = counts(matches, comparison)
    if not counted.common:
        hint = "; give --source NAME if the left stream has another name there" if by == "provenance:right" else ""
        raise PipelineError(f"{left.shown} and {right.shown} have no message in common by {by}{hint}")
    if by in ("sequence", "subject"):
        findings = matches.mapped(lambda _: iter(()), FINDINGS)
    else:
        progress.enter("comparing the order", total=counted.common)
        findings = order_findings(matches).kept()
    progress.enter("reading what differs", total=counted.odd)
    if counted.odd:
        findings = findings.united(odd_findings(lefts, rights, matches, comparison, several=counted.several > 0))
    findings = findings.kept()
    progress.messages = messages
    return DiffResult(here, there, comparison, reason, counted, allowed, findings, *overview_of(findings))


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


def _decided(left: Side, right: Side, wanted: Comparison) -> tuple[Comparison, str]:
    """Return the comparison of two sides, and the reason for the identity as a sentence; empty if the user chose it."""
    by, reason = _identity(left, right, wanted)
    rule, source = wanted.rule, b""
    if by == "provenance:right":
        source = wanted.source or left.stream.encode()
        if not source:
            raise OptionError(f"{left.place.shown}: does not name its stream; use --source NAME")
    elif wanted.source:
        raise OptionError("--source NAME: belongs to --by provenance:right")
    if rule is not None and not (
        by == "provenance:right"
        or (isinstance(rule, Sourcing) and (by == "subject" or (by == "sequence" and rule.mirrors)))
    ):
        raise OptionError(
            f"--by {by}: a rule or transform makes copies of the left side's messages, so the right side must say what "
            "it holds copies of: --by provenance:right"
        )
    return replace(wanted, by=by, source=source, first=left.place.first or 0, last=left.place.last), reason


def _identity(left: Side, right: Side, wanted: Comparison) -> tuple[By, str]:
    if wanted.by != "auto":
        return wanted.by, ""
    if wanted.rule is not None:
        return "provenance:right", "the right side's messages are copies of the left side's"
    samples = [side.rows.first(_SAMPLE).selected("header_block").table() for side in (left, right)]
    blocks: list[list[bytes]] = [sample.column(0).to_pylist() for sample in samples]
    sources = [_sources(each) for each in blocks]
    common = sources[0] & sources[1]
    if common:
        return "provenance", f"both sides' messages say that they come from {_names(common)}"
    own = left.stream.encode()
    if any(same_source(source, own) for source in sources[1]):
        return "provenance:right", f"the right side's messages say that they come from {left.stream}"
    if _is_numbered_alike(left, right):
        return "sequence", "messages with the same sequence are the same on both sides"
    if all(_share(header_block.read(block, b"Nats-Msg-Id") for block in each) >= _MOST for each in blocks):
        return "id", "the messages of both sides have a Nats-Msg-Id"
    raise OptionError(
        "nothing shows which messages of the two sides are the same: not where they come from"
        f" (left {_names(sources[0]) or 'says nothing'}, right {_names(sources[1]) or 'says nothing'}),"
        " nor their sequences, nor their ids.\n"
        "Choose with --by sequence, --by provenance, --by provenance:right (with --source NAME) or --by id"
    )


def _sources(blocks: list[bytes]) -> set[bytes]:
    found = [provenance(block) for block in blocks]
    return {each.source for each in found if each is not None} if _share(found) >= _MOST else set()


def _share(found: Iterable[object]) -> float:
    values = list(found)
    return sum(bool(value) for value in values) / len(values) if values else 0.0


def _is_numbered_alike(left: Side, right: Side) -> bool:
    """Return whether messages with the same sequence mostly have the same payload, in the range of both sides."""
    start = max(left.first, right.first)
    lefts, rights = (side.rows.selected("sequence", "data") for side in (left, right))
    some = lefts.mapped(lambda batches: (within(batch, start, None) for batch in batches), _PAYLOADS)
    some = some.first(_SAMPLE).kept()
    payloads = (rows.table().to_pydict() for rows in (some, rights.having(some, ["sequence"])))
    here, there = (dict(zip(columns["sequence"], columns["data"], strict=True)) for columns in payloads)
    alike = sum(1 for sequence, payload in there.items() if here[sequence] == payload)
    return bool(here) and alike * 2 > len(here)


def _names(sources: set[bytes]) -> str:
    return ", ".join(sorted(source.decode("utf-8", "backslashreplace") for source in sources)[:3])
