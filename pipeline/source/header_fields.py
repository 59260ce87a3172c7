"""Header blocks as lists of names and values, many at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pipeline.errors import SchemaError

__all__ = ["header_fields"]


def header_fields(blocks: Sequence[bytes], sequences: np.ndarray, kind: pa.DataType, stream: str) -> pa.Array:
    """The headers of each block, in order, repetitions and case kept; white space around a value left out.

    The first line of a block is never a header, and a line without a colon is none; no block has no headers.

    Args:
        blocks: raw blocks; empty for none.
        sequences: of the messages, for the error.
        kind: Arrow's type of the column: a list of (name, value).
        stream: the stream's name, for the error.

    Raises:
        SchemaError: a name or value is not UTF-8.
    """
    offsets = [0]
    names: list[bytes] = []
    values: list[bytes] = []
    for block in blocks:
        if block:
            for line in block.split(b"\r\n")[1:]:
                name, colon, value = line.partition(b":")
                if colon:
                    names.append(name)
                    values.append(value.strip(b" \t"))
        offsets.append(len(names))
    header = kind.value_type
    try:
        flat = pa.StructArray.from_arrays(
            [
                pa.array(names, pa.binary()).cast(pa.string()),
                pa.array(values, pa.binary()).cast(pa.string()),
            ],
            fields=[header.field(0), header.field(1)],
        )
    except pa.ArrowInvalid:
        at = next(i for i, block in enumerate(blocks) if not _is_text(block))
        raise SchemaError(
            f"stream '{stream}': a header of message {sequences[at]} is not UTF-8;"
            " read header_block, which has the bytes, instead of headers"
        ) from None
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat, type=kind)


def _is_text(block: bytes) -> bool:
    try:
        block.decode()
    except UnicodeDecodeError:
        return False
    return True
