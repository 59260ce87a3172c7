"""The columns of a stored message, for Spark and for Arrow."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

COLUMNS: Final[dict[str, str]] = {
    "stream": "string",
    "subject": "string",
    "sequence": "bigint",
    "time": "timestamp",
    "time_ns": "bigint",
    "headers": "array<struct<name:string,value:string>>",
    "header_block": "binary",
    "data": "binary",
}
"""Every column that a stream can be read into, with its type as Spark's DDL writes it.

`time` is in microseconds, like Spark's time stamps; `time_ns` has the nanoseconds since 1970 of the server. `headers`
keeps order, repetitions and case; `header_block` is the stored block, byte for byte.
"""

DEFAULT: Final = ("stream", "subject", "sequence", "time", "time_ns", "headers", "data")
"""The columns of a read without a user's schema."""

CAPTURED: Final = ("stream", "subject", "sequence", "time", "time_ns", "header_block", "data")
"""The columns of a capture."""


ARROW: Final[dict[str, pa.DataType]] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
"""The Arrow type of each type in `COLUMNS`, except that of `headers`."""


def ddl(names: tuple[str, ...]) -> str:
    """Return a schema in Spark's DDL with these columns, in this order."""
    return ", ".join(f"{name} {COLUMNS[name]}" for name in names)
