"""A backfill from its beginning to its end, on the driver."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, assert_never

from nats_bridge.bridge.client.connection import Link
from nats_bridge.bridge.client.connection_pool import close_links, open_links
from nats_bridge.bridge.kinds.registry import kind_of
from nats_bridge.bridge.settings import (
    CopyingRule,
    KvSourcesRule,
    MirrorRule,
    RepublishRule,
    Rule,
    Settings,
    SourcesRule,
)
from nats_bridge.pipeline.backfill.copy_planning import entry_backfill, entry_plans
from nats_bridge.pipeline.backfill.copying import Copying
from nats_bridge.pipeline.backfill.dry_run import DryRun
from nats_bridge.pipeline.backfill.fence import fenced
from nats_bridge.pipeline.backfill.republish_planning import republish_backfill
from nats_bridge.pipeline.backfill.republishing import Republishing
from nats_bridge.pipeline.backfill.request import Request
from nats_bridge.pipeline.backfill.summary import EntrySummary
from nats_bridge.pipeline.errors import OptionError
from nats_bridge.pipeline.progress import Shown
from nats_bridge.pipeline.source.loop_thread import LoopThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["backfill", "rule_of"]


def rule_of(settings: Settings, name: str) -> RepublishRule | SourcesRule | MirrorRule | KvSourcesRule:
    """A rule whose history can be copied.

    Raises:
        OptionError: there is no such rule, or it is of a kind without a history.
    """
    rule = next((rule for rule in settings.rules if rule.name == name), None)
    if rule is None:
        known = ", ".join(rule.name for rule in settings.rules) or "none"
        raise OptionError(f"rule '{name}': not in the configuration; there are {known}")
    if reason := kind_of(rule).no_history:
        raise OptionError(f"rule '{name}' is of kind {rule.kind}: {reason}")
    assert isinstance(rule, (RepublishRule, CopyingRule))
    return rule


def backfill(
    settings: Settings, request: Request, session: Callable[[], SparkSession], shown: Shown
) -> list[EntrySummary] | list[DryRun]:
    """Put the history through a rule.

    Args:
        settings: the configuration.
        request: what is wanted.
        session: makes the Spark session, when everything that can be checked without it is.
        shown: how progress is shown.

    Returns:
        One summary per source.

    Raises:
        PipelineError, BridgeError: what is in the way. Whatever was copied stays; the same command resumes from there.
    """
    rule = rule_of(settings, request.rule)
    with ExitStack() as open_things:
        loop = open_things.enter_context(LoopThread())
        links = loop.run(open_links(settings, set(rule.connections)))
        open_things.callback(lambda: loop.run(close_links(links.values())))
        match rule:
            case RepublishRule():
                if request.sources:
                    raise OptionError(
                        f"--source {request.sources[0]}: rule '{rule.name}' has one stream, '{rule.stream}'"
                    )
                planned = loop.run(republish_backfill(rule, settings, links, request))
                spark = session()
                if planned.task is not None:
                    _hold(open_things, loop, settings, rule, [(links[rule.source_connection], rule.stream)])
                return Republishing(spark, request, shown, loop, links[rule.target_connection]).run(planned)
            case SourcesRule() | MirrorRule() | KvSourcesRule():
                plans = loop.run(entry_plans(rule, settings, links, request))
                spark = session()
                if not request.dry_run and request.to_parquet is None:
                    origins = [(links[plan.source.connection], plan.source.name) for plan in plans]
                    _hold(open_things, loop, settings, rule, origins)
                copying = Copying(spark, request, shown, loop, links[rule.target_connection])
                entries = (loop.run(entry_backfill(plan, rule, settings, links, request)) for plan in plans)
                if request.dry_run:
                    return [copying.counted(entry) for entry in entries]
                return [copying.copied(entry, number) for number, entry in enumerate(entries)]
    assert_never(rule)


def _hold(
    open_things: ExitStack, loop: LoopThread, settings: Settings, rule: Rule, origins: list[tuple[Link, str]]
) -> None:
    """Keep others from working on the rule until everything is closed."""
    held = fenced(settings, rule, origins)
    loop.run(held.__aenter__())
    open_things.callback(lambda: loop.run(held.__aexit__(None, None, None)))
