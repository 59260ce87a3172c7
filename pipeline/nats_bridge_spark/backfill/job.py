"""Runs a backfill on the driver."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nats_bridge.client.connection import Connection
from nats_bridge.client.connection_pool import close_connections, open_connections
from nats_bridge.kinds.copying.model import CopyingRule
from nats_bridge.rule_kinds import kind_of
from nats_bridge.settings import Settings
from nats_bridge_spark.backfill.copy_planning import entry_backfill, entry_plans
from nats_bridge_spark.backfill.fence import fenced
from nats_bridge_spark.backfill.planned import Planned
from nats_bridge_spark.backfill.request import BackfillRequest, EntrySummary
from nats_bridge_spark.backfill.spark_work import KEPT, StoredPosition, counted, done
from nats_bridge_spark.capture.place import is_local
from nats_bridge_spark.engine import MESSAGES, Session, Size
from nats_bridge_spark.errors import OptionError
from nats_bridge_spark.progress import Shown, watched
from nats_bridge_spark.source.loop_thread import LoopThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rule_of(settings: Settings, name: str) -> CopyingRule:
    """A rule whose history can be copied.

    Raises:
        ConfigError: there is no such rule.
        OptionError: it is of a kind without a history.
    """
    rule = settings.rule_named(name)
    if reason := kind_of(rule).no_history:
        raise OptionError(f"rule '{name}' is of kind {rule.kind}: {reason}")
    assert isinstance(rule, CopyingRule)
    return rule


def backfill(settings: Settings, request: BackfillRequest, session: Session, shown: Shown) -> list[EntrySummary]:
    """Put the history through a rule.

    Args:
        settings: the configuration.
        request: what is wanted.
        session: makes the Spark session, when everything that can be checked without it is, and if the history is
            large enough for Spark.
        shown: how progress is shown.

    Returns:
        One summary per source.

    Raises:
        PipelineError, BridgeError: what is in the way. Whatever was copied stays; the same command resumes from there.
    """
    rule = rule_of(settings, request.rule)
    with ExitStack() as open_things:
        loop = open_things.enter_context(LoopThread())
        connections = loop.run(open_connections(settings, set(rule.connections)))
        open_things.callback(lambda: loop.run(close_connections(connections.values())))
        plans = loop.run(entry_plans(rule, settings, connections, request))
        planned = (loop.run(entry_backfill(plan, rule, settings, connections, request)) for plan in plans)
        sources = [(connections[plan.source.connection], plan.source.name) for plan in plans]
        # Only Spark reaches other places than this machine, however little there is.
        is_away = request.capture is not None and not is_local(request.capture)
        spark = session(lambda: (MESSAGES, 0) if is_away else loop.run(_size_of(sources)))
        open_things.enter_context(loop.within(fenced(settings, rule, sources)))  # until everything is closed
        job = _Job(spark, request, shown, loop, connections[rule.target_connection])
        return [job.copied(each) for each in planned]


async def _size_of(sources: list[tuple[Connection, str]]) -> Size:
    """Return how much all sources hold together."""
    states = [(await connection.api.stream_info(name))["state"] for connection, name in sources]
    return sum(int(state["messages"]) for state in states), sum(int(state["bytes"]) for state in states)


@dataclass(frozen=True, slots=True)
class _Job:
    """Histories, one after the other.

    Attributes:
        spark: the session; None for work in this process.
        request: what is wanted.
        shown: how progress is shown.
        loop: where the connections live.
        connection: the connection of the rule's target.
    """

    spark: SparkSession | None
    request: BackfillRequest
    shown: Shown
    loop: LoopThread
    connection: Connection

    def copied(self, planned: Planned) -> EntrySummary:
        """Publish one history."""
        began = time.monotonic()
        name, history = f"backfill {planned.source} → {planned.target}", planned.history(self.spark, self.request)
        nothing = EntrySummary(
            planned.source,
            planned.target,
            planned.first,
            history.last,
            next_sequence=max(history.last + 1, planned.first),
        )
        if planned.first > history.last:
            return nothing
        sequences = history.last - history.first + 1
        position = StoredPosition(self.loop, self.connection, planned.target, planned.record_of, history.first)
        with watched(self.spark, name, total=sequences, shown=self.shown) as progress:
            progress.kept = KEPT
            progress.enter("copying", count=position)
            counts = done(name, lambda: counted(planned.task, history, self.spark, self.loop))
            progress.add(counts.get("rows", 0))
        if not counts.get("rows"):
            return nothing
        return replace(
            nothing,
            read=counts["rows"],
            copied=counts["copied"],
            already_there=counts.get("already_there", 0),
            unselected=counts["unselected"],
            duplicates=counts.get("duplicates", 0),
            skipped=counts["rejected"],
            out_of_order=counts.get("out_of_order", 0),
            seconds=time.monotonic() - began,
        )
