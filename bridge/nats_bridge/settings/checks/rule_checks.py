"""The checks that each kind has of its rules, in its module `checks`. They need no server."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from nats_bridge.marked_yaml import Path
from nats_bridge.settings.connections import Connection
from nats_bridge.settings.problems import Problem
from nats_bridge.settings.rules import Rule
from nats_transforms.dialect import Dialect

RuleT = TypeVar("RuleT", bound=Rule)


class RuleChecks(ABC, Generic[RuleT]):
    """The checks of one kind of rule, or of several."""

    @abstractmethod
    def problems(self, rule: RuleT, at: Path, version: str, connections: Mapping[str, Connection]) -> Iterator[Problem]:
        """Yield the problems of a rule.

        Args:
            rule: well formed.
            at: the path of the rule.
            connections: the usable ones, by name.
        """

    def warning(self, rule: RuleT, dialect: Dialect) -> str:
        """Return a warning about a rule that can run; empty for none."""
        return ""
