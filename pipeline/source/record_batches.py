"""Messages as Arrow record batches: only the columns that are wanted, each in bulk."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from nats_bridge.pipeline.errors import SchemaError
from nats_bridge.pipeline.source.arrived import Arrived
from nats_bridge.pipeline.source.header_fields import header_fields
from nats_bridge.pipeline.source.schema import ReadSchema

__all__ = ["record_batch"]


def record_batch(messages: Arrived, stream: str, schema: ReadSchema) -> pa.RecordBatch:
    """Messages of one stream as one batch, in their order.

    Raises:
        SchemaError: a subject or header is not UTF-8, and is asked for as text.
    """
    sequences, times = messages.numbers()
    columns: list[pa.Array] = []
    for field in schema.arrow:
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
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow)


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
