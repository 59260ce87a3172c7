"""The columns of a stored message, for Spark and for Arrow."""

from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructField, StructType

from nats_bridge_spark.errors import SchemaError

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


def read_schema(schema: StructType) -> pa.Schema:
    """Return the schema of a read's record batches, exactly as Spark expects it.

    Raises:
        SchemaError: no column, one that messages do not have, or another type than its own.
    """
    if not schema.fields:
        raise SchemaError(f"a schema without columns; messages have {', '.join(COLUMNS)}")
    return pa.schema([pa.field(field.name, _arrow_type(field), nullable=field.nullable) for field in schema.fields])


def _arrow_type(field: StructField) -> pa.DataType:
    wanted = COLUMNS.get(field.name)
    if wanted is None:
        raise SchemaError(f"column {field.name}: messages have none; they have {', '.join(COLUMNS)}")
    allowed = (wanted, "binary") if field.name == "subject" else (wanted,)  # stored subjects need not be UTF-8
    found = field.dataType.simpleString()
    if found not in allowed:
        raise SchemaError(f"column {field.name}: is {' or '.join(allowed)}, not {found}")
    # Which parts of headers are nullable depends on the text of the user's schema.
    return ARROW.get(found) or to_arrow_type(field.dataType)
