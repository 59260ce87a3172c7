"""Reads captures, for other jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nats_bridge_spark.capture.manifest import MANIFEST, Capture
from nats_bridge_spark.capture.place import place_of
from nats_bridge_spark.columns import CAPTURED, ddl
from nats_bridge_spark.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def capture_at(spark: SparkSession | None, path: str) -> Capture:
    """The current capture in a directory.

    Args:
        spark: a session, which knows how to reach directories elsewhere; None for one of this machine.
        path: a directory, or its address (`file:`, `hdfs:`, `s3a:`, …).

    Raises:
        OptionError: there is no capture.
        PipelineError: its manifest cannot be read.
    """
    place = place_of(spark, path)
    text = place.read(MANIFEST)
    if text is None:
        raise OptionError(f"{path}: not a capture: there is no {MANIFEST}; nats-bridge capture makes one")
    return Capture.of_json(text, place.uri(MANIFEST))


def is_capture(spark: SparkSession, path: str) -> bool:
    """Whether there is a capture in a directory."""
    return place_of(spark, path).size(MANIFEST) is not None


def read_capture(
    spark: SparkSession,
    path: str,
    *,
    capture: Capture | None = None,
    first: int | None = None,
    last: int | None = None,
) -> DataFrame:
    """The messages of a capture, with the columns `nats_bridge_spark.columns.CAPTURED`; each message once.

    Rows of one file are in the order of their sequences; what runs at the same time and appends is not seen.

    Args:
        spark: a session.
        path: the capture's directory, or its address.
        capture: what the capture holds, if that was asked for already (`capture_at`).
        first: the first sequence wanted; None for all from the beginning.
        last: the last sequence wanted; None for all to the end.

    Raises:
        OptionError: there is no capture.
        PipelineError: its manifest cannot be read.
    """
    held = capture_at(spark, path) if capture is None else capture
    place = place_of(spark, path)
    low, high = first or 0, held.last if last is None else last
    wanted = [chunk for chunk in held.chunks if chunk.folder and low <= chunk.last and chunk.first <= high]
    schema = ddl(CAPTURED)
    if not wanted:
        return spark.createDataFrame([], schema)
    # Folders by name, not the directory: chunks that are appended later stay out.
    frame = spark.read.schema(schema).parquet(*[place.uri(chunk.folder) for chunk in wanted])
    if first is not None:
        frame = frame.where(frame.sequence >= first)
    if last is not None:
        frame = frame.where(frame.sequence <= last)
    return frame


def first_since(spark: SparkSession | None, path: str, capture: Capture, time_ns: int) -> int | None:
    """The sequence of the first captured message that was stored at a time or later; None where there is none.

    Args:
        spark: a session; None for a directory of this machine.
        path: the capture's directory, or its address.
        capture: what it holds.
        time_ns: nanoseconds since 1970.

    Raises:
        PipelineError: a file cannot be read.
    """
    if spark is not None:
        from pyspark.sql import functions as f

        rows = read_capture(spark, path, capture=capture)
        row = rows.where(rows.time_ns >= time_ns).agg(f.min("sequence")).first()
        return None if row is None else row[0]
    import pyarrow.compute as pc

    from nats_bridge_spark.capture.parquet_files import captured_rows

    for batch in captured_rows(path, capture, ("sequence", "time_ns"), first=None, last=None):
        found = pc.min(batch.filter(pc.greater_equal(batch.column("time_ns"), time_ns)).column("sequence")).as_py()
        if found is not None:
            return int(found)
    return None
