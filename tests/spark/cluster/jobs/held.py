"""Copies a stream; the first attempt of the task that writes never ends, and writes its executor's pid.

Arguments: server, stream, target stream, folder.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.taskcontext import TaskContext

from nats_bridge_spark.session import spark_session

if TYPE_CHECKING:
    import pyarrow as pa


def main(server: str, stream: str, target: str, folder: str) -> None:
    """The job."""

    def held(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        if context is None or context.attemptNumber():
            return
        # This process is a child of Spark's daemon for workers, and that is one of the executor's.
        daemon = os.getppid()
        executor = Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1]
        Path(folder, "executor.new").write_text(executor)
        Path(folder, "executor.new").rename(Path(folder, "executor"))
        while os.getppid() == daemon:
            time.sleep(0.05)

    spark = spark_session("held")
    frame = spark.read.format("jetstream").option("servers", server).option("stream", stream).option("partitions", 4)
    rows = frame.load().select("subject", "data")
    (
        rows.coalesce(1)
        .mapInArrow(held, rows.schema)
        .write.format("jetstream")
        .mode("append")
        .option("servers", server)
        .option("stream", target)
        .save()
    )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
