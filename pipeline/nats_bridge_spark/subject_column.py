"""`transform_subject`: a column of subjects through a subject transform, with the same engine as the sidecar."""

from typing import Any

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import Column, SparkSession
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # made public by a star

from nats_bridge_spark.data_source import use_this_python
from nats_bridge_spark.errors import OptionError
from nats_bridge_spark.subject_batch import destinations
from nats_transforms.dialect import NEWEST
from nats_transforms.dialect import dialect as find_dialect
from nats_transforms.errors import TransformError, UnknownDialectError
from nats_transforms.subject import bytes_of
from nats_transforms.transform import compile_transform


def transform_subject(column: Column | str, src: str, dest: str, *, dialect: str = NEWEST.name) -> Column:
    """Return the destination subjects of a column of subjects.

    Null becomes null, and so does a subject that `src` does not match (and every subject if `dest` is empty: from 2.10
    on that means no transform). Bytes stay bytes: functions that cut may split a UTF-8 character, and the result, a
    string to Spark, then contains those bytes; cast it to binary to see them. With `random(…)` the column is declared
    non-deterministic to Spark.

    Args:
        column: subjects, as strings, or as binary if they need not be UTF-8.
        src: the source, such as `orders.*.*`.
        dest: the destination, such as `{{partition(8,1)}}.orders.{{wildcard(1)}}.{{wildcard(2)}}`.
        dialect: the server version to follow, such as `2.10`.

    Raises:
        OptionError: a server of that version refuses the transform, with the server's words; or the version is unknown.
    """
    made: Column = _function(src, dest, dialect)(column)
    return made


def register_transform(spark: SparkSession, name: str, src: str, dest: str, *, dialect: str = NEWEST.name) -> None:
    """Give a transform a name in SQL: `SELECT name(subject) FROM …` is `transform_subject` of that column."""
    spark.udf.register(name, _function(src, dest, dialect))


def _function(src: str, dest: str, version: str) -> Any:
    """Return a transform as a function of Spark's, from a column of strings or of binary to one of strings."""
    try:
        spoken = find_dialect(version)
        transform = compile_transform(bytes_of(src), bytes_of(dest), spoken)
    except UnknownDialectError as error:
        raise OptionError(f"dialect: {error}") from None
    except TransformError as error:
        raise OptionError(f"transform '{src}' → '{dest}': a {spoken.name} server refuses it: {error.reason}") from None
    if SparkContext._active_spark_context is not None:  # Spark Connect has none
        use_this_python(SparkContext._active_spark_context)

    def transformed(array: pa.Array) -> pa.Array:  # Spark reads the kind of function from its annotations
        return destinations(transform, array).view(pa.string())  # bytes are not checked, which need not be UTF-8

    function: Any = arrow_udf(transformed, "string")
    return function.asNondeterministic() if transform.is_random else function
