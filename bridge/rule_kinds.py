"""From a rule to what runs it: one table of the kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias, assert_never

from bridge.connection import Link, open_link
from bridge.republish_run import RepublishRun
from bridge.rule_run import RuleRun
from bridge.settings import (
    AdvisoriesRule,
    KvSourcesRule,
    MirrorRule,
    RepublishRule,
    Rule,
    Settings,
    SourcesRule,
    SubjectTransformRule,
)
from bridge.settings.connect_options import connect_options

__all__ = ["Failed", "make_run"]

Failed: TypeAlias = Callable[[RuleRun], None]
"""Called with a run that cannot go on."""


def make_run(rule: Rule, settings: Settings, links: Mapping[str, Link], failed: Failed) -> RuleRun:
    """What runs a rule; nothing happens before its `check`.

    Args:
        rule: one of the rules of `settings`.
        settings: the configuration.
        links: the open connections by name.
        failed: called with the run when it cannot go on.
    """
    dialect = settings.dialect_of(rule)
    match rule:
        case RepublishRule():
            source, target = links[rule.source_connection], links[rule.target_connection]
            return RepublishRun(rule, settings.name, dialect, source, target, failed)
        case SourcesRule() | MirrorRule() | KvSourcesRule():
            from bridge.copying.copy_run import CopyRun

            open_target = partial(_open_without_echo, settings, rule.target_connection)
            return CopyRun(rule, settings.name, dialect, links, open_target, failed)
        case SubjectTransformRule():
            from bridge.ingress_run import IngressRun

            return IngressRun(rule, dialect, links[rule.connection], failed)
        case AdvisoriesRule():
            from bridge.advisories_run import AdvisoriesRun

            source, target = links[rule.source_connection], links[rule.target_connection]
            return AdvisoriesRun(rule, dialect, source, target, failed)
    assert_never(rule)


async def _open_without_echo(settings: Settings, name: str) -> Link:
    options = connect_options(settings.connections[name], name)
    return await open_link(name, {**options, "no_echo": True}, client_name=settings.name)
