"""Runs one comparison.

Both sides become digests, which are brought together by identity (`matching`); whether the common messages have the
same order is found out from their sequences (`ordering`); what is odd is fetched and compared (`details`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from nats_bridge_spark.diff.comparing import By, Comparison
from nats_bridge_spark.diff.deciding import decide
from nats_bridge_spark.diff.details import FINDINGS, findings
from nats_bridge_spark.diff.digests import key_columns
from nats_bridge_spark.diff.findings import Finding, text
from nats_bridge_spark.diff.matching import Counts, counts, matched
from nats_bridge_spark.diff.ordering import out_of_order
from nats_bridge_spark.diff.overview import overview_of
from nats_bridge_spark.diff.request import DiffRequest, SideLocation
from nats_bridge_spark.diff.sides import OpenSide, open_side
from nats_bridge_spark.errors import OptionError, PipelineError
from nats_bridge_spark.progress import Progress
from nats_transforms.republish import Republish
from nats_transforms.sourcing import Sourcing


@dataclass(frozen=True, slots=True)
class DiffResult:
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
        findings: all of them, with the columns `details.FINDINGS`; to be read while the session lives.
    """

    left: OpenSide
    right: OpenSide
    comparison: Comparison
    reason: str
    counts: Counts
    left_out: tuple[int, int]
    kinds: dict[str, int]
    headers: dict[tuple[str, str], int]
    examples: dict[str, tuple[Finding, ...]]
    order_is_exact: bool
    allowed: frozenset[str]
    findings: DataFrame = field(repr=False)

    @property
    def is_equal(self) -> bool:
        """Whether there are no findings but allowed ones."""
        return not any(number for kind, number in self.kinds.items() if kind not in self.allowed)


@contextmanager
def compared(
    spark: SparkSession, left: SideLocation, right: SideLocation, wanted: DiffRequest, progress: Progress | None = None
) -> Iterator[DiffResult]:
    """Compare two sides. What Spark keeps for the result is released when the block ends.

    Raises:
        OptionError: nothing identifies messages, or the options do not go together.
        PipelineError: a side cannot be read or holds nothing, or the sides have no message in common.
    """
    progress = progress or Progress("diff")
    if left == right:
        raise OptionError(f"both sides are the same: {left.shown}; say two streams or captures, or two ranges of one")
    with _small_batches(spark), ExitStack() as sides:
        # The right first: then the left has all that a copier has brought until then.
        progress.enter("reading the right side")
        other = sides.enter_context(closing(open_side(spark, right)))
        progress.enter("reading the left side")
        one = sides.enter_context(closing(open_side(spark, left)))
        with _compared(one, other, wanted, progress) as result:
            yield result


@contextmanager
def _compared(left: OpenSide, right: OpenSide, wanted: DiffRequest, progress: Progress) -> Iterator[DiffResult]:
    by, reason = _decision(left, right, wanted)
    comparison = _comparison(left, by, wanted)
    messages = left.messages + right.messages
    if comparison.by == "subject":
        left, right = left.newest(comparison.rule), right.newest()
    progress.enter("bringing both sides together", total=messages)
    found = matched(left.frame, right.frame, comparison, messages).persist()
    shown: DataFrame | None = None
    try:
        counted = counts(found, comparison)
        if not counted.common:
            raise PipelineError(_nothing_in_common(left, right, found, comparison))
        exact = True
        odd = found.where("odd")
        parts = []
        if counted.odd:
            duplicated = counted.duplicated > 0
            parts.append(findings(left.frame, right.frame, odd, comparison, number=counted.odd, duplicated=duplicated))
        if comparison.by not in ("sequence", "subject"):
            progress.enter("comparing the order", total=counted.common)
            moved, exact = out_of_order(_pairs(found))
            if moved is not None:
                parts.append(_as_findings(moved, found, comparison, few=exact))
        progress.enter("reading what differs", total=counted.odd)
        shown = parts[0] if parts else left.frame.sparkSession.createDataFrame([], FINDINGS)
        for part in parts[1:]:
            shown = shown.unionByName(part)
        shown = shown.persist()
        kinds, headers, examples = overview_of(shown, wanted.examples)
        progress.messages = messages
        yield DiffResult(
            left=left,
            right=right,
            comparison=comparison,
            reason=reason,
            counts=counted,
            left_out=(left.messages - counted.left, right.messages - counted.right),
            kinds=kinds,
            headers=headers,
            examples=examples,
            order_is_exact=exact,
            allowed=wanted.allowed,
            findings=shown,
        )
    finally:
        if shown is not None:
            shown.unpersist()
        found.unpersist()


def _decision(left: OpenSide, right: OpenSide, wanted: DiffRequest) -> tuple[By, str]:
    if wanted.by != "auto":
        return wanted.by, ""
    if wanted.rule is not None:
        return "provenance:right", "the right side's messages are copies of the left side's"
    return decide(left, right)


def _comparison(left: OpenSide, by: By, wanted: DiffRequest) -> Comparison:
    rule, source = wanted.rule, b""
    if by == "provenance:right":
        source = (wanted.source or left.stream).encode()
        if not source:
            raise OptionError(f"{left.place.shown}: does not say of which stream it is; give --source NAME")
    elif wanted.source:
        raise OptionError("--source NAME: belongs to --by provenance:right")
    if rule is not None and not (
        by == "provenance:right"
        or (by == "sequence" and _keeps_sequences(rule))
        or (by == "subject" and isinstance(rule, Sourcing))
    ):
        raise OptionError(
            f"--by {by}: a rule or transform makes copies of the left side's messages, so the right side must say what "
            "it holds copies of: --by provenance:right"
        )
    return Comparison(
        by=by,
        bridged=wanted.like == "bridged" or (wanted.like == "auto" and by.startswith(("provenance", "subject"))),
        ignored_headers=wanted.ignored_headers,
        source=source,
        first=left.place.first or 0,
        last=left.place.last,
        rule=rule,
    )


def _keeps_sequences(rule: Sourcing | Republish) -> bool:
    return isinstance(rule, Sourcing) and rule.mirrors


def _pairs(found: DataFrame) -> DataFrame:
    """Common messages by their sequences; of those that are there several times, the first."""
    return found.where("left is not null and right is not null").select("left", "right", "grouped")


def _as_findings(moved: DataFrame, found: DataFrame, comparison: Comparison, *, few: bool) -> DataFrame:
    known = found.select("left", "right", *key_columns(comparison))
    together = known.join(F.broadcast(moved) if few else moved, ["left", "right"])
    identity = F.col("number").cast("string")
    if comparison.by in ("provenance", "id"):
        source = F.udf(lambda value: text(bytes(value or b"")), "string")("source")
        identity = source if comparison.by == "id" else F.concat_ws(" ", source, identity)
    return together.select(
        F.lit("order").alias("kind"),
        identity.alias("identity"),
        F.col("left").alias("left_sequence"),
        F.col("right").alias("right_sequence"),
        F.lit("").alias("field"),
        F.lit(None).cast("string").alias("left_value"),
        F.when(F.col("late"), F.lit("later")).otherwise(F.lit("earlier")).alias("right_value"),
    )


def _nothing_in_common(left: OpenSide, right: OpenSide, found: DataFrame, comparison: Comparison) -> str:
    """A hint at the reason: an identity of either side."""

    def some(side: str) -> str:
        row = found.where(f"{side} is not null").limit(1).collect()
        if not row:
            return "none"
        values: dict[str, Any] = row[0].asDict()
        source = text(bytes(values.get("source") or b""))
        if comparison.by in ("id", "subject"):
            return source or "none"
        if comparison.by == "provenance":
            return f"{source} {values['number']}" if source else "none"
        return str(values["number"]) if values["number"] > 0 else "none"

    hint = (
        "; give --source NAME if the left stream has another name there" if comparison.by == "provenance:right" else ""
    )
    return (
        f"{left.place.shown} and {right.place.shown} have no message in common by {comparison.by} "
        f"(the left one has {some('left')}, the right one {some('right')}){hint}"
    )


_PER_BATCH: Final = "spark.sql.execution.arrow.maxBytesPerBatch"


@contextmanager
def _small_batches(spark: SparkSession) -> Iterator[None]:
    """For the length of the comparison, small batches: with payloads of megabytes, ten thousand fit into no task."""
    before = spark.conf.get(_PER_BATCH, None)
    spark.conf.set(_PER_BATCH, str(64 << 20))
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_PER_BATCH)
        else:
            spark.conf.set(_PER_BATCH, before)
