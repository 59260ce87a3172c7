"""The full messages of odd identities, and the findings about them, still on Spark: there may be many.

Theory of operation: the sequences of both sides are known per identity, so their messages are taken from the sides by a
join on sequence, and brought together by identity. Where an identity has several messages on a side, only the lowest
sequence is known; the others are searched again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from nats_bridge_spark.columns import ARROW
from nats_bridge_spark.diff.comparing import Comparison, State
from nats_bridge_spark.diff.digests import digested, key_columns, read_side
from nats_bridge_spark.diff.findings import Finding, Side, found, text

FINDINGS: Final = (
    "kind string, identity string, left_sequence bigint, right_sequence bigint, field string, "
    "left_value string, right_value string"
)
"""The columns of the result."""
SCHEMA: Final = pa.schema([(name, ARROW[kind]) for name, kind in map(str.split, FINDINGS.split(", "))])
"""The schema of `FINDINGS` for Arrow."""

_PER_TASK: Final = 20_000  # identities
_FEW: Final = 500_000  # identities whose sequences can be sent to every task, which spares a shuffle of whole messages
_AT_ONCE: Final = 500  # findings in a batch


def findings(
    left: DataFrame, right: DataFrame, odd: DataFrame, comparison: Comparison, *, number: int, duplicated: bool
) -> DataFrame:
    """Findings about the odd identities; columns `FINDINGS`.

    Args:
        left: the left side's messages, with the columns of a capture.
        right: the right side's.
        odd: the rows of `matching.matched` that are odd.
        comparison: what is compared.
        number: how many rows these are.
        duplicated: whether a side has more than one message of an identity.
    """
    sides = []
    for frame, is_right in ((left, False), (right, True)):
        wanted = odd.selectExpr(("right" if is_right else "left") + " as sequence").where("sequence is not null")
        if duplicated:
            wanted = wanted.union(_of_duplicates(frame, odd, comparison, right=is_right)).distinct()
        if number <= _FEW:
            wanted = F.broadcast(wanted)
        messages = read_side(frame.join(wanted, "sequence", "left_semi"), comparison, right=is_right, with_data=True)
        sides.append(messages.withColumn("right", F.lit(is_right)))
    keys = ["source", "number"]
    tasks = -(-number // _PER_TASK)
    together = sides[0].unionByName(sides[1]).repartition(tasks, *keys).sortWithinPartitions(*keys, "right", "sequence")
    return together.mapInArrow(_shown, FINDINGS)


def _of_duplicates(frame: DataFrame, odd: DataFrame, comparison: Comparison, *, right: bool) -> DataFrame:
    """The sequences of all messages whose identity some side has several times."""
    keys = key_columns(comparison)
    several = odd.where((F.col("messages").bitwiseAND((1 << 32) - 1) > 1) | (F.shiftright("messages", 32) > 1))
    return digested(frame, comparison, right=right).join(several.select(*keys), keys, "left_semi").select("sequence")


def _shown(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches_of(found_in(row for batch in batches for row in batch.to_pylist()))


def batches_of(found: Iterator[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    """Findings in columns."""
    while some := list(islice(found, _AT_ONCE)):
        yield pa.RecordBatch.from_pylist(some, SCHEMA)


def found_in(rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The findings in full messages.

    Args:
        rows: the columns of `read_side` with payloads, and `right`, which side it is; sorted by identity, then by side
            and sequence.
    """
    for (state, source, number), group in groupby(rows, itemgetter("state", "source", "number")):
        sides: tuple[list[Side], list[Side]] = ([], [])
        for row in group:
            sides[row["right"]].append(
                Side(row["sequence"], row["entry"], row["subject"] or b"", row["block"] or b"", row["data"] or b"")
            )
        identity = f"{text(source)} {number}" if source and number else text(source) or str(number)
        if state == State.UNIDENTIFIED:
            found_here: Iterator[Finding] = _unidentified(*sides)
            identity = ""
        else:
            found_here = found(*sides)
        for each in found_here:
            yield {
                "kind": each.kind,
                "identity": identity,
                "left_sequence": each.left_sequence,
                "right_sequence": each.right_sequence,
                "field": each.field,
                "left_value": each.left,
                "right_value": each.right,
            }


def _unidentified(lefts: list[Side], rights: list[Side]) -> Iterator[Finding]:
    for side in lefts:
        yield Finding("unidentified", side.sequence, None, "left", text(side.subject), None)
    for side in rights:
        yield Finding("unidentified", None, side.sequence, "right", None, text(side.subject))
