"""Runs one comparison.

Both sides become digests, which are brought together by identity (`matching`); whether the common messages have the
same order is found out from their sequences (`ordering`); what is odd is fetched and compared (`details`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from nats_bridge_spark.diff.comparing import Comparison
from nats_bridge_spark.diff.deciding import comparison_of, decision, nothing_in_common, require_two
from nats_bridge_spark.diff.details import FINDINGS, findings
from nats_bridge_spark.diff.digests import key_columns
from nats_bridge_spark.diff.findings import text
from nats_bridge_spark.diff.matching import counts, matched
from nats_bridge_spark.diff.ordering import out_of_order
from nats_bridge_spark.diff.overview import overview_of
from nats_bridge_spark.diff.request import DiffRequest, SideLocation
from nats_bridge_spark.diff.result import DiffResult
from nats_bridge_spark.diff.sides import OpenSide, open_side
from nats_bridge_spark.errors import PipelineError
from nats_bridge_spark.progress import Progress


@contextmanager
def compared(
    spark: SparkSession, left: SideLocation, right: SideLocation, wanted: DiffRequest, progress: Progress | None = None
) -> Iterator[DiffResult[DataFrame]]:
    """Compare two sides. What Spark keeps for the result is released when the block ends.

    Raises:
        OptionError: nothing identifies messages, or the options do not go together.
        PipelineError: a side cannot be read or holds nothing, or the sides have no message in common.
    """
    progress = progress or Progress("diff")
    require_two(left, right)
    with _small_batches(spark), ExitStack() as sides:
        # The right first: then the left has all that a copier has brought until then.
        progress.enter("reading the right side")
        other = sides.enter_context(closing(open_side(spark, right)))
        progress.enter("reading the left side")
        one = sides.enter_context(closing(open_side(spark, left)))
        with _compared(one, other, wanted, progress) as result:
            yield result


@contextmanager
def _compared(
    left: OpenSide, right: OpenSide, wanted: DiffRequest, progress: Progress
) -> Iterator[DiffResult[DataFrame]]:
    by, reason = decision(left, right, wanted)
    comparison = comparison_of(left, by, wanted)
    messages = left.messages + right.messages
    if comparison.by == "subject":
        left, right = left.newest(comparison.rule), right.newest()
    progress.enter("bringing both sides together", total=messages)
    found = matched(left.frame, right.frame, comparison, messages).persist()
    shown: DataFrame | None = None
    try:
        counted = counts(found, comparison)
        if not counted.common:
            some = [_some_identity(found, side) for side in ("left", "right")]
            raise PipelineError(nothing_in_common(left, right, comparison, some))
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


def _some_identity(found: DataFrame, side: str) -> tuple[bytes, int] | None:
    """The identity of some message of a side."""
    row = found.where(f"{side} is not null").limit(1).collect()
    if not row:
        return None
    values: dict[str, Any] = row[0].asDict()
    return bytes(values.get("source") or b""), values["number"]


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
