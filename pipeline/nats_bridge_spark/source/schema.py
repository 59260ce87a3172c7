"""The columns that a read gives, from the schema that Spark hands on, and the same in Arrow's words."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, StructField, StructType

from nats_bridge_spark.columns import ARROW, COLUMNS
from nats_bridge_spark.errors import SchemaError


def read_schema(schema: StructType) -> pa.Schema:
    """Return the schema of a read's record batches, exactly as Spark expects it.

    Args:
        schema: the columns in order, as Spark hands them on.

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
    found = field.dataType.simpleString()
    is_subject = field.name == "subject"  # which can also be read as bytes, because stored subjects need not be UTF-8
    if is_subject and found == "binary":
        return pa.binary()
    if found != wanted:
        also = " or binary" if is_subject else ""
        raise SchemaError(f"column {field.name}: is {wanted}{also}, not {found}")
    if field.name == "headers":
        return _headers_type(field.dataType)
    return ARROW[wanted]


def _headers_type(headers: DataType) -> pa.DataType:
    """Return the type that Spark maps to Arrow; the nullable parts depend on the text of the user's schema."""
    assert isinstance(headers, ArrayType)
    header = headers.elementType
    assert isinstance(header, StructType)
    parts = [pa.field(part.name, pa.string(), nullable=part.nullable) for part in header.fields]
    return pa.list_(pa.field("element", pa.struct(parts), nullable=headers.containsNull))
