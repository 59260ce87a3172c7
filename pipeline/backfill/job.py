"""A backfill from its beginning to its end, on the driver."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

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
from pipeline.backfill.fence import fenced
from pipeline.backfill.history import captured_history, in_order, live_history
from pipeline.backfill.request import Request
from pipeline.backfill.summary import EntrySummary
from pipeline.errors import JobFailedError, OptionError
from pipeline.failures import failure
from pipeline.progress import watched
from pipeline.source.loop_thread import LoopThread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["backfill", "rule_of"]

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
) -> list[EntrySummary]:
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
        origins = [(links[plan.source.connection], plan.source.name) for plan in plans]
        held = fenced(settings, rule, origins)
        loop.run(held.__aenter__())
        open_things.callback(lambda: loop.run(held.__aexit__(None, None, None)))
        summaries = []
        for plan in plans:
            entry = loop.run(entry_backfill(plan, rule, settings, links, request))
            summaries.append(_copied(spark, entry, request, quiet=quiet))
        return summaries


def _copied(spark: SparkSession, entry: EntryBackfill, request: Request, *, quiet: bool) -> EntrySummary:
    plan, began = entry.plan, time.monotonic()
    name = f"backfill {plan.source.name} → {plan.stream}"
    nothing = EntrySummary(
        plan.source.name, plan.stream, entry.first, entry.last, next_sequence=max(entry.last + 1, entry.first)
    )
    if entry.first > entry.last and request.capture is None:
        return nothing
    with watched(spark, name, total=entry.messages or None, quiet=quiet) as progress:
        progress.kept = _KEPT
        progress.enter("copying")
        counts = counts_of(name, history_of(spark, entry, request).mapInArrow(entry.task, TOLD))
        progress.add(counts.get("rows", 0))
    if not counts.get("rows"):
        return nothing
    last = max(entry.last, counts["last"]) if request.capture is None else counts["last"]
    return EntrySummary(
        plan.source.name,
        plan.stream,
        entry.first,
        last,
        read=counts["rows"],
        copied=counts["copied"],
        already_there=counts["already_there"],
        unselected=counts["unselected"],
        duplicates=counts["duplicates"],
        skipped=counts["rejected"],
        out_of_order=counts["out_of_order"],
        seconds=time.monotonic() - began,
        next_sequence=last + 1,
    )


def history_of(spark: SparkSession, entry: EntryBackfill, request: Request) -> DataFrame:
    """The rows of an entry, in one partition and in order."""
    if request.capture is not None:
        rows = captured_history(spark, request.capture, entry.plan.source.name, entry.first, request.last)
        return in_order(rows)
    connection = entry.task.origin
    return live_history(
        spark, connection, entry.plan.source.name, entry.first, entry.last, subjects=_pushed(entry.subjects)
    )


def counts_of(job: str, tasks: DataFrame) -> Mapping[str, int]:
    """Run tasks; what they counted together.

    Raises:
        PipelineError: what a task said, or that Spark gave the job up.
    """
    try:
        return told_of([row[0] for row in tasks.collect()])
    except Exception as error:
        said = failure(job, error)
        if isinstance(said, JobFailedError):
            raise JobFailedError(f"{said.message}; {_KEPT}") from None
        raise said from None


def _pushed(subjects: tuple[str, ...]) -> tuple[str, ...]:
    """Filters as the data source takes them: with commas between them, so that none may have one."""
    return () if any("," in subject for subject in subjects) else subjects
