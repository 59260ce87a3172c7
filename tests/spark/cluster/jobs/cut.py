"""Reads a stream with one task after the other; after the first one it waits until the server has stopped.

Arguments: server, stream, folder.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.taskcontext import TaskContext

from nats_bridge_spark.errors import PipelineError
from nats_bridge_spark.session import engine_session

if TYPE_CHECKING:
    import pyarrow as pa


def main(server: str, stream: str, folder: str) -> None:
    """The job."""

    def then_gone(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        if context is None or context.partitionId():
            return
        Path(folder, "read").touch()
        while not Path(folder, "gone").exists():
            time.sleep(0.05)

    with engine_session("cut", "spark", {}, lambda: (0, 0), {}) as spark:
        assert spark is not None
        frame = spark.read.format("jetstream").option("servers", server).option("stream", stream)
        rows = frame.option("partitions", 2).option("connectTimeout", 2).load()
        rows.mapInArrow(then_gone, rows.schema).write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except PipelineError as error:
        Path(sys.argv[3], "error").write_text(str(error))
        sys.exit(error.exit_code)
