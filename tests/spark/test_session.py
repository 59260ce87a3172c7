from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_format_is_known_by_its_name(spark: SparkSession) -> None:
    frame = spark.read.format("jetstream").option("servers", "nats://127.0.0.1:1").option("stream", "S").load()
    assert frame.columns == ["stream", "subject", "sequence", "time", "time_ns", "headers", "data"]
