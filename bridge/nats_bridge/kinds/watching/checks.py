"""Finds the problems of a rule of kind watch without a server."""

from collections.abc import Iterator, Mapping

from nats_bridge.kinds.watching.model import WatchRule
from nats_bridge.marked_yaml import Path
from nats_bridge.settings import Connection
from nats_bridge.settings.checks.rule_checks import RuleChecks
from nats_bridge.settings.problems import Problem


class WatchChecks(RuleChecks[WatchRule]):
    """The checks of rules of kind watch."""

    def problems(
        self, rule: WatchRule, at: Path, version: str, connections: Mapping[str, Connection]
    ) -> Iterator[Problem]:
        """Yield the problems of a rule."""
        if rule.stalled_after <= rule.interval:
            yield Problem(
                (*at, "stalled_after"),
                f"{rule.stalled_after:g} s is not longer than the interval, {rule.interval:g} s; a stall shows only in"
                " several comparisons",
            )


CHECKS = WatchChecks()
