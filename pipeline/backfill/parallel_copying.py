"""An entry's history copied by several tasks at the same time, and its end by one.

A live rule finds its place by the newest copies in the target, which must be in order for that. So the last messages
are left to one task that begins when all others are done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from nats_bridge.pipeline.backfill.copy_planning import EntryBackfill
from nats_bridge.pipeline.backfill.copy_task import CopyTask
from nats_bridge.pipeline.backfill.history import History
from nats_bridge.pipeline.backfill.parallel_task import ROUTED, ParallelTask, Routing
from nats_bridge.pipeline.backfill.present import COLUMNS, SEQUENCES, Present
from nats_bridge.pipeline.backfill.rows import COLUMNS as ROWS
from nats_bridge.pipeline.backfill.stored_position import StoredPosition
from nats_bridge.pipeline.backfill.task_counts import TOLD, told_of
from nats_bridge.pipeline.columns import ddl
from nats_bridge.pipeline.connections import options_of
from nats_bridge.pipeline.progress import Progress
from nats_bridge.transforms.sourcing import Sourcing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["copied_in_parallel"]


@dataclass(frozen=True, slots=True)
class _Selected:
    """The sequences of the rows that an entry selects; called by Spark."""

    sourcing: Sourcing

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            subjects = batch.column(batch.schema.get_field_index("subject")).cast(pa.binary()).to_pylist()
            known = {subject: self.sourcing.destination(subject) is not None for subject in set(subjects)}
            sequences = batch.column(batch.schema.get_field_index("sequence"))
            yield pa.record_batch({"sequence": sequences.filter(pa.array([known[each] for each in subjects]))})


def copied_in_parallel(
    spark: SparkSession,
    entry: EntryBackfill,
    history: History,
    tasks: int,
    progress: Progress,
    in_order: int,
    position: Callable[[EntryBackfill, int], StoredPosition],
) -> Mapping[str, int]:
    """Copy; the counts.

    Args:
        spark: the session.
        entry: what is to be copied.
        history: its rows.
        tasks: how many write at the same time.
        progress: told of stages.
        in_order: how many messages at the end are left to one task.
        position: from where a history begins to what tells how far one task has come.
    """
    progress.enter("looking for what is there")
    held = _held(spark, entry)
    middle = _middle(spark, entry, history, in_order)
    told: list[str] = []
    if middle >= history.first:
        progress.enter("copying in parallel")
        rows = replace(history, last=middle).at_once(spark)
        if held is not None:
            rows = rows.join(held, "sequence", "left_anti").select(*ROWS)
        shares = (
            rows.mapInArrow(Routing(entry.outcomes), ROUTED)
            .repartition(tasks, "destination")
            .sortWithinPartitions("sequence")
        )
        task = ParallelTask(
            entry.outcomes,
            _present(entry),
            entry.target_last,
            entry.task.target,
            entry.task.skip,
            entry.task.client,
            entry.task.patience,
        )
        told += [row[0] for row in shares.mapInArrow(task, TOLD).collect()]
    progress.enter("copying the end in order", count=position(entry, middle + 1))
    rest = replace(history, first=middle + 1)
    told += [row[0] for row in rest.given_to(_behind(entry.task, middle), spark).collect()]
    return told_of(told)


def _present(entry: EntryBackfill) -> Present:
    return Present(entry.plan, entry.outcomes.key, entry.created_ns)


def _held(spark: SparkSession, entry: EntryBackfill) -> DataFrame | None:
    """The origin's sequences that the target holds; None for none."""
    if not entry.target_messages:
        return None
    options = {
        **options_of(entry.task.target),
        "stream": entry.plan.stream,
        "endSequence": str(entry.target_last),
        "failOnDataLoss": "false",
    }
    stored = spark.read.format("jetstream").schema(ddl(COLUMNS)).options(**options).load()
    return stored.mapInArrow(_present(entry), SEQUENCES)


def _middle(spark: SparkSession, entry: EntryBackfill, history: History, wanted: int) -> int:
    """The sequence behind which the entry selects so many messages; the one before the first if it does not."""
    size = 2 * wanted
    while True:
        first = max(history.first, history.last - size + 1)
        some = replace(history, first=first).at_once(spark)
        selected = some.mapInArrow(_Selected(entry.plan.sourcing), SEQUENCES)
        newest = [row[0] for row in selected.orderBy("sequence", ascending=False).limit(wanted).collect()]
        if len(newest) == wanted:
            return int(newest[-1]) - 1
        if first == history.first:
            return history.first - 1
        size *= 4


def _behind(task: CopyTask, sequence: int) -> CopyTask:
    """A task that takes it for known that the target holds everything up to a sequence."""
    source = task.plan.source.model_copy(update={"opt_start_seq": sequence + 1, "opt_start_time": None})
    return replace(task, plan=replace(task.plan, source=source, behind=sequence), first=sequence + 1)
