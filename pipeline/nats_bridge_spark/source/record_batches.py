"""Messages as Arrow record batches: only the columns that are wanted, each in bulk."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import Filter

from nats_bridge_spark.errors import SchemaError
from nats_bridge_spark.source.arrived import Arrived
from nats_bridge_spark.source.pushdown import passing


def record_batch(messages: Arrived, stream: str, schema: pa.Schema, applied: tuple[Filter, ...] = ()) -> pa.RecordBatch:
    """Messages of one stream as one batch, in their order, without those that do not pass the filters.

    Raises:
        SchemaError: a subject or header is not UTF-8, and is read as a string.
    """
    sequences, times = messages.numbers()
    if applied:
        kept = passing(applied, sequences, times, messages.subjects)
        messages, sequences, times = messages.kept(kept), sequences[kept], times[kept]
    columns: list[pa.Array] = []
    for field in schema:
        name = field.name
        if name == "stream":
            columns.append(pa.repeat(pa.scalar(stream, field.type), len(messages)))
        elif name == "subject":
            columns.append(_subjects(messages.subjects, sequences, field.type, stream))
        elif name == "sequence":
            columns.append(pa.array(sequences))
        elif name == "time_ns":
            columns.append(pa.array(times))
        elif name == "time":
            columns.append(pa.array(times // 1000).cast(field.type))
        elif name == "headers":
            columns.append(header_fields(messages.blocks, sequences, field.type, stream))
        elif name == "header_block":
            columns.append(messages.blocks)
        else:
            columns.append(messages.payloads)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _subjects(subjects: pa.BinaryArray, sequences: np.ndarray, kind: pa.DataType, stream: str) -> pa.Array:
    if pa.types.is_binary(kind):
        return subjects
    try:
        return subjects.cast(kind)
    except pa.ArrowInvalid:
        at = next(i for i, subject in enumerate(subjects.to_pylist()) if not _is_text(subject))
        raise SchemaError(
            f"stream '{stream}': the subject of message {sequences[at]} is not UTF-8: {subjects[at].as_py()!r};"
            " read it with a schema that says `subject binary`"
        ) from None


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def header_fields(blocks: pa.BinaryArray, sequences: np.ndarray, kind: pa.DataType, stream: str) -> pa.Array:
    """Return the headers of each block, with order, repetitions and case, but without white space around values.

    The first line of a block is never a header, and a line without a colon is not one either. No block means no
    headers.

    Args:
        blocks: raw blocks; empty for none.
        sequences: of the messages, for the error.
        kind: Arrow's type of the column: a list of (name, value).
        stream: the stream's name, for the error.

    Raises:
        SchemaError: a name or value is not UTF-8.
    """
    header = kind.value_type
    if not blocks.nbytes or not pc.any(pc.greater(pc.binary_length(blocks), 0)).as_py():
        none = pa.array([], header)
        return pa.ListArray.from_arrays(pa.array(np.zeros(len(blocks) + 1, np.int32)), none, type=kind)
    try:
        text = blocks.cast(pa.string())
    except pa.ArrowInvalid:
        at = next(i for i, block in enumerate(blocks.to_pylist()) if not _is_text(block))
        raise SchemaError(
            f"stream '{stream}': a header of message {sequences[at]} is not UTF-8;"
            " read header_block, which has the bytes, instead of headers"
        ) from None
    lines = pc.split_pattern(text, "\r\n")
    flat = lines.flatten()
    starts = lines.offsets.to_numpy()
    is_header = pc.match_substring(flat, ":").to_numpy(zero_copy_only=False)
    is_header[starts[:-1] - starts[0]] = False
    counted = np.append(0, np.cumsum(is_header, dtype=np.int32))
    parts = pc.split_pattern(flat.filter(pa.array(is_header)), ":", max_splits=1)
    values = pc.ascii_trim(pc.list_element(parts, 1), " \t") if len(parts) else pa.array([], pa.string())
    names = pc.list_element(parts, 0) if len(parts) else pa.array([], pa.string())
    fields = pa.StructArray.from_arrays([names, values], fields=[header.field(0), header.field(1)])
    return pa.ListArray.from_arrays(pa.array(counted[starts - starts[0]]), fields, type=kind)
