"""The writers of the data source: planned on the driver, run in tasks, summed up on the driver."""

import asyncio
import logging
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final
from uuid import uuid4

import pyarrow as pa
import structlog
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from pyspark.taskcontext import TaskContext

from nats_bridge_spark.connections import connected_by_options
from nats_bridge_spark.errors import OptionError, PipelineError, marking
from nats_bridge_spark.sink.partition_write import PartitionWrite, WrittenPartition
from nats_bridge_spark.sink.plan import RowLayout, WriteOptions, WritePlan
from nats_bridge_spark.sink.stored_rows import TaskPlace
from nats_bridge_spark.source.loop_thread import LoopThread
from nats_bridge_spark.source.stream_state import StreamState, state_of

_WRITE_ID: Final = re.compile(r"(?P<name>[A-Za-z0-9_.:-]{1,100}?)(?:@(?P<after>[0-9]{1,19}))?")


class _Writer:
    """Writes the rows of a task."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenPartition:
        """Write the rows of a task. Runs on executors."""
        plan = self._plan
        # Not configured like a job: the process also runs the user's own functions with their own logging.
        structlog.configure(
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),
            wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        )
        with marking(), LoopThread() as loop:
            write = PartitionWrite(plan, _task(plan))
            try:
                for batch in iterator:
                    loop.run(write.add(batch))
                return loop.run(write.finish())
            finally:
                loop.run(write.close())


class JetStreamWriter(_Writer, DataSourceArrowWriter):
    """Writes a DataFrame to a stream."""

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Note that all tasks are done."""
        reports = [message for message in messages if isinstance(message, WrittenPartition)]
        rows, already = sum(report.rows for report in reports), sum(report.already for report in reports)
        there = f", {already} of them were there already" if already else ""
        print(f"jetstream: {rows} rows written to {self._plan.options.stream}{there}", file=sys.stderr)  # noqa: T201

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Report that the write failed. Stored rows stay, and the write can be repeated."""
        plan = self._plan
        print(  # noqa: T201
            f"jetstream: the write to {plan.options.stream} failed; what it stored stays. The same rows again with"
            f' .option("writeId", "{plan.name}") store the rest, and nothing twice.',
            file=sys.stderr,
        )


class JetStreamStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes micro-batches to a stream. Stored rows of a failed one stay, and are found when it is repeated."""


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> JetStreamWriter:
    """Plan a batch write, after requesting the end of the stream.

    Raises:
        PipelineError: (marked) options or columns are wrong, or the stream does not exist.
    """

    async def target(options: WriteOptions) -> StreamState:
        async with connected_by_options(options.connection) as link:
            return await state_of(link, options.stream)

    with marking():
        plan = plan_of(options, schema, overwrite, streaming=False)
        given = plan.options.write_id
        named = _WRITE_ID.fullmatch(given or uuid4().hex[:12])
        if named is None:
            raise OptionError(f"option writeId: '{given}': use letters, digits and . _ : - (at most 100)")
        state = asyncio.run(target(plan.options))
        # Errors of a failed write name it with the stream's last sequence before it.
        after = int(named["after"]) if named["after"] else None
        end = after if given else state.last
        return JetStreamWriter(replace(plan, write_id=named["name"], after=end, known=state.known))


def plan_of(options: Mapping[str, str], schema: StructType, overwrite: bool, *, streaming: bool) -> WritePlan:
    """Plan a write without requests to servers. Raises an `OptionError` or a `SchemaError`."""
    if overwrite:
        raise OptionError(
            'mode overwrite: a stream is not overwritten, only appended to: .mode("append"); to start over, purge it'
            " first (nats stream purge)"
        )
    read = WriteOptions.of(options)
    return WritePlan(read, RowLayout.of(schema, read.id_column), streaming=streaming)


def _task(plan: WritePlan) -> TaskPlace:
    context = TaskContext.get()
    if context is None:
        raise PipelineError("rows are written by tasks of Spark, and this is none")
    if context.getLocalProperty("spark.speculation") == "true":
        raise OptionError(
            "spark.speculation is on: two tries of a task would write at the same time, and only the stream's"
            " duplicate window would keep rows from being stored twice; turn it off"
        )
    task = TaskPlace(context.partitionId(), context.attemptNumber(), plan.write_id)
    if not plan.streaming:  # which can be inside of foreachBatch
        return task
    query, batch = map(context.getLocalProperty, ("sql.streaming.queryId", "streaming.sql.batchId"))
    if not query or not batch:
        raise PipelineError("Spark does not report which streaming query a task is of: use PySpark 4.1 or newer")
    return replace(task, write=query, batch=int(batch))
