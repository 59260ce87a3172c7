"""Checks valid rules, each by its kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from nats_bridge.marked_yaml import Path
from nats_bridge.rule_kinds import checks_of
from nats_bridge.settings.checks.transforming import dialect_problem
from nats_bridge.settings.connections import Connection
from nats_bridge.settings.problems import Problem
from nats_bridge.settings.rules import Rule


def rule_problems(
    rules: Iterable[tuple[int, Rule]], default_dialect: str, connections: Mapping[str, Connection]
) -> Iterator[Problem]:
    """Yield the problems of valid rules.

    Args:
        rules: with their positions in the configuration.
        default_dialect: the dialect of rules that name none.
        connections: the usable ones, by name.
    """
    for position, rule in rules:
        at: Path = ("rules", position)
        version = rule.dialect or default_dialect
        if problem := dialect_problem(version):
            if rule.dialect:  # otherwise it is reported once, at the configuration's dialect
                yield Problem((*at, "dialect"), problem)
        else:
            yield from checks_of(rule).problems(rule, at, version, connections)
