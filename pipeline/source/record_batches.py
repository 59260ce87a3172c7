"""Delivered messages as Arrow record batches: only the columns that are wanted, each in bulk."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from bridge.wire import Delivered
from pipeline.errors import SchemaError
from pipeline.source.header_fields import header_fields
from pipeline.source.schema import ReadSchema

__all__ = ["record_batch"]


def record_batch(messages: Sequence[Delivered], stream: str, schema: ReadSchema) -> pa.RecordBatch:
    """Messages of one stream as one batch, in their order.

    Raises:
        SchemaError: a subject or header is not UTF-8, and is asked for as text.
    """
    subjects, replies, blocks, payloads = zip(*messages, strict=True)
    sequences, times = _numbers(replies)
    columns: list[pa.Array] = []
    for field in schema.arrow:
        name = field.name
        if name == "stream":
            columns.append(pa.repeat(pa.scalar(stream, field.type), len(messages)))
        elif name == "subject":
            columns.append(_subjects(subjects, sequences, field.type, stream))
        elif name == "sequence":
            columns.append(pa.array(sequences))
        elif name == "time_ns":
            columns.append(pa.array(times))
        elif name == "time":
            columns.append(pa.array(times // 1000).cast(field.type))
        elif name == "headers":
            columns.append(header_fields(blocks, sequences, field.type, stream))
        elif name == "header_block":
            columns.append(pa.array(blocks, field.type))
        else:
            columns.append(pa.array(payloads, field.type))
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(messages), pa.struct([])))
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow)


def _numbers(replies: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Stream sequences and times of reply subjects; see `bridge.republish_loop.AckReply`."""
    at = 5 if replies[0].count(b".") == 8 else 7
    sequences, times = [], []
    for reply in replies:
        tokens = reply.split(b".")
        sequences.append(int(tokens[at]))
        times.append(int(tokens[at + 2]))
    return np.array(sequences, np.int64), np.array(times, np.int64)


def _subjects(subjects: Sequence[bytes], sequences: np.ndarray, kind: pa.DataType, stream: str) -> pa.Array:
    raw = pa.array(subjects, pa.binary())
    if pa.types.is_binary(kind):
        return raw
    try:
        return raw.cast(kind)
    except pa.ArrowInvalid:
        at = next(i for i, subject in enumerate(subjects) if not _is_text(subject))
        raise SchemaError(
            f"stream '{stream}': the subject of message {sequences[at]} is not UTF-8: {subjects[at]!r};"
            " read it with a schema that says `subject binary`"
        ) from None


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
