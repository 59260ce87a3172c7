"""Runs a backfill: one history after the other."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from nats_bridge.client.connection import Connection
from nats_bridge.client.connection_pool import close_connections, open_connections
from nats_bridge.kinds.copying.model import CopyingRule
from nats_bridge.rule_kinds import kind_of
from nats_bridge.settings import Settings
from nats_bridge_spark.backfill.fence import fenced
from nats_bridge_spark.backfill.history_copy import HistoryCopy
from nats_bridge_spark.backfill.planning import entry_copy, entry_plans
from nats_bridge_spark.backfill.request import BackfillRequest, EntrySummary
from nats_bridge_spark.capture.place import place_of
from nats_bridge_spark.connections import connected
from nats_bridge_spark.engine import run_here
from nats_bridge_spark.errors import OptionError
from nats_bridge_spark.progress import watched
from nats_bridge_spark.source.loop_thread import LoopThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KEPT: Final = "what was copied stays: run the same command again"
"""The hint for a person who stopped a backfill."""


def rule_of(settings: Settings, name: str) -> CopyingRule:
    """Return a rule whose history can be copied.

    Raises:
        ConfigError: a rule of that name does not exist.
        OptionError: it is of a kind without a history.
    """
    rule = settings.rule_named(name)
    if reason := kind_of(rule).no_history:
        raise OptionError(f"rule '{name}' is of kind {rule.kind}: {reason}")
    assert isinstance(rule, CopyingRule)
    return rule


def backfill(settings: Settings, request: BackfillRequest, spark: SparkSession | None) -> list[EntrySummary]:
    """Put the history through a rule.

    Args:
        spark: a session, if only Spark reaches the capture; otherwise None.

    Returns:
        One summary per source.

    Raises:
        PipelineError, BridgeError: the job cannot continue. Messages copied so far stay; the same command resumes after
            them.
    """
    rule = rule_of(settings, request.rule)
    with ExitStack() as open_things:
        loop = open_things.enter_context(LoopThread())
        connections = loop.run(open_connections(settings, set(rule.connections)))
        open_things.callback(lambda: loop.run(close_connections(connections.values())))
        plans = loop.run(entry_plans(rule, settings, connections, request))
        captured = None if request.capture is None else place_of(spark, request.capture)
        copies = [loop.run(entry_copy(plan, rule, settings, connections, request, captured)) for plan in plans]
        sources = [(connections[plan.source.connection], plan.source.name) for plan in plans]
        open_things.enter_context(loop.within(fenced(settings, rule, sources)))  # until everything is closed
        connecting = connected(settings.connections[rule.target_connection], client_name=settings.name, no_echo=True)
        target = open_things.enter_context(loop.within(connecting))
        return [_copied(copy, source, target, loop) for copy, (source, _) in zip(copies, sources, strict=True)]


def _copied(copy: HistoryCopy, source: Connection, target: Connection, loop: LoopThread) -> EntrySummary:
    """Copy one history."""
    began = time.monotonic()
    plan, first, last = copy.plan, copy.first, copy.history.last
    summary = EntrySummary(plan.source.name, plan.stream, first, last, next_sequence=max(last + 1, first))
    if first > last:
        return summary
    name = f"backfill {plan.source.name} → {plan.stream}"
    with watched(None, name, total=last - first + 1) as progress:
        progress.kept = _KEPT
        progress.enter("copying", count=lambda: copy.handed - first + 1)
        run_here(loop, copy.run(source, target))
        progress.add(copy.read)
    counters = copy.counters
    summary.read, summary.copied, summary.already_there = copy.read, counters.copied, counters.already_there
    summary.unselected, summary.duplicates = counters.unselected, counters.duplicates
    summary.skipped, summary.out_of_order = counters.rejected, counters.out_of_order
    summary.seconds = time.monotonic() - began
    return summary
