"""Finds the problems of a republish rule without a server."""

from collections.abc import Iterator, Mapping

from nats_bridge.kinds.republish.model import Delivery, RepublishRule
from nats_bridge.marked_yaml import Path
from nats_bridge.rules.reserved_destinations import reserved_remark
from nats_bridge.settings import Connection
from nats_bridge.settings.checks.patterns import exclusion_problems, filter_problem
from nats_bridge.settings.checks.rule_checks import RuleChecks
from nats_bridge.settings.checks.transforming import candidates, destination_problem, is_always_a_command
from nats_bridge.settings.problems import Problem
from nats_transforms.dialect import Dialect
from nats_transforms.transform import compile_transform


class RepublishChecks(RuleChecks[RepublishRule]):
    """The checks of rules of kind republish."""

    def problems(
        self, rule: RepublishRule, at: Path, version: str, connections: Mapping[str, Connection]
    ) -> Iterator[Problem]:
        """Yield the problems of a rule."""
        if rule.delivery is Delivery.AT_LEAST_ONCE and not rule.durable:
            yield Problem(
                (*at, "durable"),
                "at_least_once needs a position that outlives a crash; remove durable: false or use at_most_once",
            )
        source, destination = rule.republish.src or ">", rule.republish.dest
        if reason := filter_problem(source):
            yield Problem((*at, "republish", "src"), reason)
            return
        yield from exclusion_problems(rule.exclude, [source], (*at, "exclude"), "republished")
        if reason := destination_problem(source, destination, version):
            yield Problem((*at, "republish", "dest"), reason)
        elif is_always_a_command(source, destination, candidates(version)):
            yield Problem(
                (*at, "republish", "dest"),
                f"'{destination}' is a command to the server for every message; use a different subject",
            )
        elif source == destination and "*" not in source and rule.source_connection == rule.target_connection:
            yield Problem(
                (*at, "republish", "dest"),
                f"'{destination}' is where the messages come from: an endless loop; use another subject",
            )

    def warning(self, rule: RepublishRule, dialect: Dialect) -> str:
        """Return whether a message may choose a command to the server as its destination."""
        transform = compile_transform((rule.republish.src or ">").encode(), rule.republish.dest.encode(), dialect)
        return reserved_remark(transform, exclude=[pattern.encode() for pattern in rule.exclude])


CHECKS = RepublishChecks()
