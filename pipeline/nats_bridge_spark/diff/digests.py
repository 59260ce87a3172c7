"""Reduces a side to digests: an identity per message, and 64 bits of what is compared.

Theory of operation: where messages are compared as they are and by sequence, Spark does all of it. Otherwise the header
blocks go through Python, where the engine reads them; payloads never do, of them the digest is enough.

A digest is xxHash of subject, header block and payload, 64 bits. It is no cryptographic one: it finds what happens, not
what an attacker forges.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from nats_bridge_spark.diff.comparing import Comparison, Reader, State, is_plain
from nats_bridge_spark.diff.usual_copies import quick_reader
from nats_transforms.republish import Republish

READ: Final = (
    "state tinyint, source binary, number bigint, sequence bigint, entry binary, subject binary, block binary, "
    "ignored bigint, data_digest bigint"
)
"""What `read_side` gives; `subject` and `block` as they are compared."""


def key_columns(comparison: Comparison) -> list[str]:
    """The columns that hold an identity; see `digested`."""
    return ["number"] if comparison.by in ("sequence", "provenance:right") else ["source", "number"]


def read_side(frame: DataFrame, comparison: Comparison, *, right: bool, with_data: bool = False) -> DataFrame:
    """The messages of a side as they are compared: columns `READ`.

    Those that nothing identifies are among them, with their own sequence as number, negative on the right. Others that
    are not compared are not.

    Args:
        frame: with the columns `subject`, `sequence`, `header_block` and `data`.
        comparison: what is compared.
        right: which side it is.
        with_data: give the payloads themselves (column `data`) in place of `data_digest`.
    """
    # With `headers_only` the copies have no payload.
    data = F.lit(b"") if isinstance(comparison.rule, Republish) and comparison.rule.headers_only else _bytes("data")
    columns = [F.col("sequence"), _bytes("subject").alias("subject"), _bytes("header_block").alias("block")]
    columns.append(data.alias("data") if with_data else F.xxhash64(data).alias("data_digest"))
    schema = READ.replace("data_digest bigint", "data binary") if with_data else READ

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reading = quick_reader(comparison, right=right)
        for batch in batches:
            yield read_batch(batch, reading)

    found = frame.select(*columns).mapInArrow(read, schema)
    own = -F.col("sequence") if right else F.col("sequence")
    return found.where(F.col("state").isin(State.COMPARED, State.UNIDENTIFIED)).withColumn(
        "number", F.when(F.col("state") == State.COMPARED, F.col("number")).otherwise(own)
    )


def digested(frame: DataFrame, comparison: Comparison, *, right: bool) -> DataFrame:
    """One row per message that is compared.

    Returns:
        columns `source`, `number` (the identity), `sequence`, `grouped` (messages of one value have an order among
        themselves), `digest`, `ignored`.
    """
    if is_plain(comparison):
        return frame.select(
            F.lit(b"").alias("source"),
            F.col("sequence").alias("number"),
            F.col("sequence"),
            F.lit(None).cast("bigint").alias("grouped"),
            F.xxhash64(_bytes("subject"), _bytes("header_block"), F.xxhash64(_bytes("data"))).alias("digest"),
            F.lit(0).cast("bigint").alias("ignored"),
        )
    read = read_side(frame, comparison, right=right)
    grouped = F.lit(None).cast("bigint")
    if comparison.by == "id":
        grouped = F.lit(0).cast("bigint")
    elif (comparison.by == "provenance" and not right) or (comparison.by == "provenance:right" and right):
        grouped = F.xxhash64("source", "entry")
    return read.select(
        "source",
        "number",
        "sequence",
        grouped.alias("grouped"),
        F.xxhash64("subject", "block", "data_digest").alias("digest"),
        "ignored",
    )


def _bytes(name: str) -> Column:
    """A column as bytes; what is not there is taken for empty, which in a stream is the same."""
    return F.coalesce(F.col(name).cast("binary"), F.lit(b""))


def read_batch(batch: pa.RecordBatch, read: Reader) -> pa.RecordBatch:
    """The messages of a batch as they are compared: columns `READ`, with the last one as it is.

    Args:
        batch: sequences, subjects, header blocks, and payloads or digests.
        read: the reader of their side.
    """
    sequences, subjects, blocks, payloads = batch.columns
    found = map(read, sequences.to_pylist(), subjects.to_pylist(), blocks.to_pylist())
    states, sources, numbers, entries, copied, changed, ignored = list(zip(*found, strict=True)) or [()] * 7

    return pa.RecordBatch.from_arrays(
        [
            pa.array(states, pa.int8()),
            pa.array(sources, pa.binary()),
            pa.array(numbers, pa.int64()),
            sequences,
            pa.array(entries, pa.binary()),
            pa.array(copied, pa.binary()).fill_null(subjects),
            pa.array(changed, pa.binary()).fill_null(blocks),
            pa.array(ignored, pa.int64()),
            payloads,
        ],
        names=[
            *("state", "source", "number", "sequence", "entry", "subject", "block", "ignored"),
            batch.schema.names[-1],
        ],
    )
