"""The history of a copying rule's entry: published, written to files, or counted."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from nats_bridge.bridge.client.connection import Link
from nats_bridge.bridge.kinds.copying.tail_reader import own_record
from nats_bridge.pipeline.backfill.copy_planning import EntryBackfill
from nats_bridge.pipeline.backfill.dry_run import DryRun, dry_run
from nats_bridge.pipeline.backfill.fence import mark_unfinished
from nats_bridge.pipeline.backfill.files import write_files
from nats_bridge.pipeline.backfill.history import History, LiveHistory, captured_history
from nats_bridge.pipeline.backfill.parallel_copying import copied_in_parallel
from nats_bridge.pipeline.backfill.request import Request
from nats_bridge.pipeline.backfill.spark_work import done, watching
from nats_bridge.pipeline.backfill.stored_position import StoredPosition
from nats_bridge.pipeline.backfill.summary import EntrySummary
from nats_bridge.pipeline.backfill.task_counts import told_of
from nats_bridge.pipeline.progress import Progress, Shown
from nats_bridge.pipeline.source.loop_thread import LoopThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Copying"]


@dataclass(frozen=True, slots=True)
class Copying:
    """The entries of a copying rule, one after the other.

    Attributes:
        spark: the session.
        request: what is wanted.
        shown: how progress is shown.
        loop: where the connections live.
        target: the connection of the rule's target.
    """

    spark: SparkSession
    request: Request
    shown: Shown
    loop: LoopThread
    target: Link

    def counted(self, entry: EntryBackfill) -> DryRun:
        """Only count."""
        job, history = self._named(entry), self._history(entry)
        nothing = DryRun(entry.plan.source.name, entry.plan.stream, history.first, history.last)
        if history.first > history.last:
            return nothing
        with watching(self.spark, job, history.last - history.first + 1, self.shown) as progress:
            progress.enter("counting")
            return done(job, lambda: dry_run(history.at_once(self.spark), entry.outcomes, nothing, self.request.top))

    def copied(self, entry: EntryBackfill, number: int) -> EntrySummary:
        """Publish, or write files; the `number` of the entry says whether files of another one are there."""
        folder = self.request.to_parquet
        job, history = self._named(entry), self._history(entry)
        plan, began = entry.plan, time.monotonic()
        after = max(history.last, history.first - 1)
        nothing = EntrySummary(
            plan.source.name, folder or plan.stream, history.first, history.last, next_sequence=after + 1
        )
        if history.first > history.last:
            return nothing
        with watching(self.spark, job, history.last - history.first + 1, self.shown) as progress:
            if folder is not None:
                progress.enter("writing files")
                mode = "append" if number else "overwrite" if self.request.overwrite else "errorifexists"
                rows = history.at_once(self.spark)
                written = done(job, lambda: write_files(rows, entry.outcomes, plan.source.name, folder, mode=mode))
                progress.add(written.read)
                return replace(
                    nothing,
                    read=written.read,
                    copied=written.copied,
                    unselected=written.read - written.copied - written.rejected,
                    skipped=written.rejected,
                    seconds=time.monotonic() - began,
                )
            counts = done(job, lambda: self._publish(entry, history, progress))
            progress.add(counts.get("rows", 0))
        if not counts.get("rows"):
            return nothing
        return replace(
            nothing,
            read=counts["rows"],
            copied=counts["copied"],
            already_there=counts["already_there"],
            unselected=counts["unselected"],
            duplicates=counts["duplicates"],
            skipped=counts["rejected"],
            out_of_order=counts["out_of_order"],
            seconds=time.monotonic() - began,
        )

    def _publish(self, entry: EntryBackfill, history: History, progress: Progress) -> Mapping[str, int]:
        """What the tasks counted."""
        request = self.request
        if request.parallel > 1:
            self.loop.run(mark_unfinished(entry.unfinished, history.first, history.last, entry.held_from))
            counts = copied_in_parallel(
                self.spark, entry, history, request.parallel, progress, request.in_order, self._position
            )
            self.loop.run(entry.unfinished.end())
            return counts
        progress.enter("copying", count=self._position(entry, history.first))
        tasks = history.given_to(entry.task, self.spark)
        return told_of([row[0] for row in tasks.collect()])

    def _position(self, entry: EntryBackfill, first: int) -> StoredPosition:
        record_of = partial(own_record, entry.plan.sourcing.is_own)
        return StoredPosition(self.loop, self.target, entry.plan.stream, record_of, first)

    def _named(self, entry: EntryBackfill) -> str:
        return f"backfill {entry.plan.source.name} → {self.request.to_parquet or entry.plan.stream}"

    def _history(self, entry: EntryBackfill) -> History:
        name, path = entry.plan.source.name, self.request.capture
        if path is None:
            return LiveHistory(entry.task.origin, name, entry.first, entry.last, entry.subjects)
        return captured_history(
            self.spark,
            path,
            stream=name,
            created=entry.task.created,
            filters=entry.plan.sourcing.filters,
            held_from=entry.held_from,
            first=entry.first,
            last=self.request.last,
        )
