"""Reads a stream, transforms its subjects, writes Parquet and another stream; writes where tasks have their code from.

Arguments: server, stream, target stream, folder.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nats_bridge_spark.session import spark_session
from nats_bridge_spark.subject_column import transform_subject

PACKAGES = ("nats_transforms", "nats_bridge", "nats_bridge_spark", "pyspark_jetstream")


def where(_: Iterable[int]) -> Iterable[dict[str, Any]]:
    """What a task sees."""
    from importlib import import_module, metadata

    yield {
        "files": [import_module(name).__file__ for name in PACKAGES],
        "version": metadata.version("nats-bridge"),
        "path": sys.path,
        "directory": str(Path.cwd()),
    }


def main(server: str, stream: str, target: str, folder: str) -> None:
    """The job."""
    spark = spark_session("through")
    frame = spark.read.format("jetstream").option("servers", server).option("stream", stream).option("partitions", 4)
    to = transform_subject("subject", "in.*.*", "out.{{partition(4,1)}}.$2.$1")
    frame.load().withColumn("subject", to).write.parquet(f"{folder}/rows")
    written = spark.read.parquet(f"{folder}/rows").orderBy("sequence").select("subject", "headers", "data")
    (
        written.write.format("jetstream")
        .mode("append")
        .option("servers", server)
        .option("stream", target)
        .option("checkSubjects", "true")
        .save()
    )
    seen = spark.sparkContext.parallelize(range(4), 4).mapPartitions(where).collect()
    driver = next(where(iter([])))
    Path(folder, "where.json").write_text(
        json.dumps({"tasks": seen, "driver": driver, "master": spark.sparkContext.master})
    )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
