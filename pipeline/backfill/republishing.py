"""The history of a republish rule: published, written to files, or counted."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nats_bridge.bridge.client.connection import Link
from nats_bridge.pipeline.backfill.dry_run import DryRun, dry_run
from nats_bridge.pipeline.backfill.files import write_files
from nats_bridge.pipeline.backfill.history import History, LiveHistory, captured_history
from nats_bridge.pipeline.backfill.republish_planning import RepublishBackfill
from nats_bridge.pipeline.backfill.request import Request
from nats_bridge.pipeline.backfill.spark_work import done, watching
from nats_bridge.pipeline.backfill.stored_position import StoredPosition
from nats_bridge.pipeline.backfill.summary import EntrySummary
from nats_bridge.pipeline.backfill.task_counts import told_of
from nats_bridge.pipeline.progress import Shown
from nats_bridge.pipeline.source.loop_thread import LoopThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Republishing"]


@dataclass(frozen=True, slots=True)
class Republishing:
    """A republish rule. Its history is always read in order and from its beginning, for the last sequences.

    Attributes:
        spark: the session.
        request: what is wanted.
        shown: how progress is shown.
        loop: where the connections live.
        target: the connection that is published to.
    """

    spark: SparkSession
    request: Request
    shown: Shown
    loop: LoopThread
    target: Link

    def run(self, planned: RepublishBackfill) -> list[EntrySummary] | list[DryRun]:
        """Run the job; return its summaries."""
        request, folder = self.request, self.request.to_parquet
        history = self._history(planned)
        last = history.last
        job = f"backfill {planned.stream} → {folder or planned.captured_by or 'nothing'}"
        began = time.monotonic()
        counted = DryRun(planned.stream, "the rule's destinations", planned.first, last)
        summary = EntrySummary(
            planned.stream,
            folder or planned.captured_by,
            planned.first,
            last,
            next_sequence=max(last + 1, planned.first),
            start_counts=True,
        )
        if planned.first > last:
            return [counted] if request.dry_run else [summary]
        with watching(self.spark, job, last - history.first + 1, self.shown) as progress:
            if request.dry_run:
                progress.enter("counting")
                rows = history.in_order(self.spark)
                return [done(job, lambda: dry_run(rows, planned.outcomes, counted, request.top))]
            if planned.task is None:
                progress.enter("writing files")
                assert folder is not None
                mode = "overwrite" if request.overwrite else "errorifexists"
                rows = history.in_order(self.spark)
                written = done(job, lambda: write_files(rows, planned.outcomes, planned.stream, folder, mode=mode))
                progress.add(written.read)
                return [
                    replace(
                        summary,
                        read=written.read,
                        copied=written.copied,
                        skipped=written.rejected,
                        seconds=time.monotonic() - began,
                    )
                ]
            position = StoredPosition(
                self.loop, self.target, planned.captured_by, planned.task.record_of, history.first
            )
            progress.enter("republishing", count=position)
            tasks = history.given_to(planned.task, self.spark)
            counts = done(job, lambda: told_of([row[0] for row in tasks.collect()]))
            progress.add(counts.get("rows", 0))
        return [
            replace(
                summary,
                read=counts.get("rows", 0),
                copied=counts.get("copied", 0),
                already_there=counts.get("already_there", 0),
                unselected=counts.get("unselected", 0),
                duplicates=counts.get("duplicates", 0),
                skipped=counts.get("rejected", 0),
                out_of_order=counts.get("out_of_order", 0),
                seconds=time.monotonic() - began,
            )
        ]

    def _history(self, planned: RepublishBackfill) -> History:
        path = self.request.capture
        if path is None:
            return LiveHistory(planned.connection, planned.stream, 1, planned.last)
        return captured_history(
            self.spark,
            path,
            stream=planned.stream,
            created=planned.created,
            filters=(),
            held_from=planned.held_from,
            first=1,
            last=self.request.last,
        )
