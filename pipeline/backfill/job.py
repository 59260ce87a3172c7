"""A backfill from its beginning to its end, on the driver."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from bridge.links import close_links, open_links
from bridge.settings import (
    AdvisoriesRule,
    KvSourcesRule,
    MirrorRule,
    Rule,
    Settings,
    SourcesRule,
    SubjectTransformRule,
)
from pipeline.backfill.copy_planning import EntryBackfill, entry_backfill, entry_plans
from pipeline.backfill.copy_task import TOLD, told_of
from pipeline.backfill.dry_run import DryRun, dry_run
from pipeline.backfill.fence import fenced
from pipeline.backfill.files import write_files
from pipeline.backfill.history import History, LiveHistory, captured_history
from pipeline.backfill.request import Request
from pipeline.backfill.summary import EntrySummary
from pipeline.errors import JobFailedError, JobStoppedError, OptionError
from pipeline.failures import failure
from pipeline.progress import Progress, watched
from pipeline.source.loop_thread import LoopThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["backfill", "rule_of"]

_Result = TypeVar("_Result")
_KEPT: Final = "what was copied stays: run the same command again"


def rule_of(settings: Settings, name: str) -> Rule:
    """A rule whose history can be copied.

    Raises:
        OptionError: there is no such rule, or it is of a kind without a history.
    """
    rule = next((rule for rule in settings.rules if rule.name == name), None)
    if rule is None:
        known = ", ".join(rule.name for rule in settings.rules) or "none"
        raise OptionError(f"rule '{name}': not in the configuration; there are {known}")
    if isinstance(rule, SubjectTransformRule):
        raise OptionError(
            f"rule '{name}' is of kind subject_transform: it changes messages before they are stored, so there is no"
            " history to put through it. Copy what the stream holds with a rule of kind sources that has this transform"
        )
    if isinstance(rule, AdvisoriesRule):
        raise OptionError(
            f"rule '{name}' is of kind advisories: servers send these and keep none, so there is no history of them"
        )
    return rule


def backfill(
    settings: Settings, request: Request, session: Callable[[], SparkSession], *, quiet: bool = False
) -> list[EntrySummary] | list[DryRun]:
    """Put the history through a rule.

    Args:
        settings: the configuration.
        request: what is wanted.
        session: makes the Spark session, when everything that can be checked without it is.
        quiet: show no progress.

    Returns:
        One summary per source.

    Raises:
        PipelineError, BridgeError: what is in the way. Whatever was copied stays; the same command goes on from there.
    """
    rule = rule_of(settings, request.rule)
    assert isinstance(rule, (SourcesRule, MirrorRule, KvSourcesRule))
    with ExitStack() as open_things:
        loop = open_things.enter_context(LoopThread())
        links = loop.run(open_links(settings, set(rule.connections)))
        open_things.callback(lambda: loop.run(close_links(links.values())))
        plans = loop.run(entry_plans(rule, settings, links, request))
        spark = session()
        if not request.dry_run and request.to_parquet is None:
            origins = [(links[plan.source.connection], plan.source.name) for plan in plans]
            held = fenced(settings, rule, origins)
            loop.run(held.__aenter__())
            open_things.callback(lambda: loop.run(held.__aexit__(None, None, None)))
        copying = _Copying(spark, request, quiet)
        entries = (loop.run(entry_backfill(plan, rule, settings, links, request)) for plan in plans)
        if request.dry_run:
            return [copying.counted(entry) for entry in entries]
        return [copying.copied(entry, number) for number, entry in enumerate(entries)]


@dataclass(frozen=True, slots=True)
class _Copying:
    """The entries of a copying rule, one after the other."""

    spark: SparkSession
    request: Request
    quiet: bool

    def counted(self, entry: EntryBackfill) -> DryRun:
        """Only count."""
        job, history = self._named(entry), self._history(entry)
        nothing = DryRun(entry.plan.source.name, entry.plan.stream, history.first, history.last)
        if history.first > history.last:
            return nothing
        with self._watched(job, history) as progress:
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
        with self._watched(job, history) as progress:
            progress.enter("copying")
            if folder is not None:
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
            tasks = history.in_order(self.spark).mapInArrow(entry.task, TOLD)
            counts = done(job, lambda: told_of([row[0] for row in tasks.collect()]))
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

    def _named(self, entry: EntryBackfill) -> str:
        return f"backfill {entry.plan.source.name} → {self.request.to_parquet or entry.plan.stream}"

    @contextmanager
    def _watched(self, job: str, history: History) -> Iterator[Progress]:
        total = history.last - history.first + 1
        with watched(self.spark, job, total=total, quiet=self.quiet) as progress:
            progress.kept = _KEPT
            yield progress

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


def done(job: str, work: Callable[[], _Result]) -> _Result:
    """What Spark's work gives.

    Raises:
        BridgeError: what a task said, or that Spark gave the job up.
    """
    try:
        return work()
    except JobStoppedError:
        raise
    except Exception as error:
        said = failure(job, error)
        if isinstance(said, JobFailedError):
            raise JobFailedError(f"{said.message}; {_KEPT}") from None
        raise said from None
