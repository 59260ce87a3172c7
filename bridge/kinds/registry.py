"""From a rule to what runs it: one table of the kinds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import assert_never

from nats_bridge.bridge.client.connection import Link, open_link
from nats_bridge.bridge.kinds.republish.run import RepublishRun
from nats_bridge.bridge.rules.context import RuleContext
from nats_bridge.bridge.rules.run import RuleRun
from nats_bridge.bridge.settings import (
    AdvisoriesRule,
    KvSourcesRule,
    MirrorRule,
    RepublishRule,
    Rule,
    Settings,
    SourcesRule,
    SubjectTransformRule,
)
from nats_bridge.bridge.settings.connect_options import connect_options

__all__ = ["make_run"]


def make_run(rule: Rule, settings: Settings, links: Mapping[str, Link], context: RuleContext) -> RuleRun:
    """What runs a rule; nothing happens before its `check`.

    Args:
        rule: one of the rules of `settings`.
        settings: the configuration.
        links: the open connections by name.
        context: what the run is given beside that.
    """
    match rule:
        case RepublishRule():
            source, target = links[rule.source_connection], links[rule.target_connection]
            return RepublishRun(rule, source, target, context)
        case SourcesRule() | MirrorRule() | KvSourcesRule():
            from nats_bridge.bridge.kinds.copying.run import CopyRun

            open_target = partial(_open_without_echo, settings, rule.target_connection)
            return CopyRun(rule, links, open_target, context)
        case SubjectTransformRule():
            from nats_bridge.bridge.kinds.ingress.run import IngressRun

            return IngressRun(rule, links[rule.connection], context)
        case AdvisoriesRule():
            from nats_bridge.bridge.kinds.advisories.run import AdvisoriesRun

            source, target = links[rule.source_connection], links[rule.target_connection]
            return AdvisoriesRun(rule, source, target, context)
    assert_never(rule)


async def _open_without_echo(settings: Settings, name: str) -> Link:
    options = connect_options(settings.connections[name], name)
    return await open_link(name, {**options, "no_echo": True}, client_name=settings.name)
