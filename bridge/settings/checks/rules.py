"""Rules that are well formed each: what is wrong with them, by kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import assert_never

from nats_bridge.bridge.settings.checks.advisories import advisories_problems
from nats_bridge.bridge.settings.checks.dialects import dialect_problem
from nats_bridge.bridge.settings.checks.republishing import republish_problems
from nats_bridge.bridge.settings.connections import Connection
from nats_bridge.bridge.settings.problems import Problem
from nats_bridge.bridge.settings.rules import (
    AdvisoriesRule,
    Delivery,
    KvSourcesRule,
    MirrorRule,
    RepublishRule,
    Rule,
    SourcesRule,
    SubjectTransformRule,
)
from nats_bridge.marked_yaml import Path

__all__ = ["rule_problems"]


def rule_problems(
    rules: Iterable[tuple[int, Rule]], default_dialect: str, connections: Mapping[str, Connection]
) -> Iterator[Problem]:
    """What is wrong with rules that are well formed each.

    Args:
        rules: with their positions in the configuration.
        default_dialect: the dialect of rules that name none.
        connections: the usable ones, by name.
    """
    for position, rule in rules:
        at: Path = ("rules", position)
        version = rule.dialect or default_dialect
        if isinstance(rule, RepublishRule) and rule.delivery is Delivery.AT_LEAST_ONCE and not rule.durable:
            yield Problem(
                (*at, "durable"),
                "at_least_once needs a position that outlives a crash; remove durable: false or use at_most_once",
            )
        if problem := dialect_problem(version):
            if rule.dialect:  # else it is reported once, where the configuration's dialect stands
                yield Problem((*at, "dialect"), problem)
        else:
            yield from _problems(rule, at, version, connections)


def _problems(rule: Rule, at: Path, version: str, connections: Mapping[str, Connection]) -> Iterator[Problem]:
    match rule:
        case RepublishRule():
            return republish_problems(rule, at, version)
        case SourcesRule() | MirrorRule() | KvSourcesRule():
            from nats_bridge.bridge.settings.checks.copying import copying_problems  # asks the engine as a server would

            return copying_problems(rule, at, version)
        case SubjectTransformRule():
            from nats_bridge.bridge.settings.checks.ingress import ingress_problems  # for the same reason

            connection = connections.get(rule.connection, Connection())
            return ingress_problems(rule, at, version, connection.inbox_prefix)
        case AdvisoriesRule():
            return advisories_problems(rule, at, version)
    assert_never(rule)
