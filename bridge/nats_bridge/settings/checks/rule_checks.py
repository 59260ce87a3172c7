"""The checks that a kind has of its rules, in its module `checks` if there are any. They need no server."""

from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

from nats_bridge.marked_yaml import Path
from nats_bridge.rule_kinds import has_module, module_of
from nats_bridge.settings.connections import Connection
from nats_bridge.settings.problems import Problem
from nats_bridge.settings.rules import Rule
from nats_transforms.dialect import Dialect

RuleT = TypeVar("RuleT", bound=Rule)


class RuleChecks(Generic[RuleT]):
    """The checks of one kind of rule, or of several. The base class finds nothing."""

    def problems(self, rule: RuleT, at: Path, version: str, connections: Mapping[str, Connection]) -> Iterator[Problem]:
        """Yield the problems of a rule.

        Args:
            rule: well formed.
            at: the path of the rule.
            connections: the usable ones, by name.
        """
        return iter(())

    def warning(self, rule: RuleT, dialect: Dialect) -> str:
        """Return a warning about a rule that can run; empty for none."""
        return ""


def checks_of(rule: Rule) -> RuleChecks[Any]:
    """Return the checks of a rule's kind, without importing the modules that run the rule."""
    if not has_module(rule.kind, "checks"):
        return RuleChecks()
    checks: RuleChecks[Any] = module_of(rule.kind, "checks").CHECKS
    return checks
