"""Finds the problems of a rule of kind advisories without a server."""

from collections.abc import Iterator, Mapping
from typing import Final

from nats_bridge.kinds.advisories.model import AdvisoriesRule
from nats_bridge.marked_yaml import Path
from nats_bridge.rules.reserved_destinations import reserved_remark
from nats_bridge.settings import Connection
from nats_bridge.settings.checks.patterns import filter_problem, reserved_problem, subjects_of
from nats_bridge.settings.checks.rule_checks import RuleChecks
from nats_bridge.settings.checks.transforming import destination_problem
from nats_bridge.settings.problems import Problem
from nats_transforms.dialect import Dialect
from nats_transforms.transform import compile_transform

_ADVISORIES: Final = "$JS.EVENT.ADVISORY.>"
_EXAMPLE: Final = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.*.*"
_ABOUT_A_MESSAGE: Final = tuple(
    f"$JS.EVENT.ADVISORY.CONSUMER.{what}.*.*" for what in ("MAX_DELIVERIES", "MSG_TERMINATED", "MSG_NAKED")
)
"""The consumer's advisories that name a message, by `stream_seq` (2.9 and newer)."""


class AdvisoriesChecks(RuleChecks[AdvisoriesRule]):
    """The checks of rules of kind advisories."""

    def problems(
        self, rule: AdvisoriesRule, at: Path, version: str, connections: Mapping[str, Connection]
    ) -> Iterator[Problem]:
        """Yield the problems of a rule."""
        source, destination = rule.republish.src, rule.republish.dest
        if reason := _source_problem(source, given="src" in rule.republish.model_fields_set):
            yield Problem((*at, "republish", "src"), reason)
            return
        if rule.attach_message and not any(subjects_of(source).meet(subjects_of(about)) for about in _ABOUT_A_MESSAGE):
            yield Problem(
                (*at, "attach_message"),
                f"'{source}' selects no advisory about a message, such as CONSUMER.MAX_DELIVERIES,"
                " CONSUMER.MSG_TERMINATED or CONSUMER.MSG_NAKED; select one of them, or remove this",
            )
        if rule.copies_in and not rule.attach_message:
            yield Problem(
                (*at, "copies_in"), "is for messages that are attached; set attach_message: true, or remove it"
            )
        if reason := destination_problem(source, destination, version) or reserved_problem(destination):
            yield Problem((*at, "republish", "dest"), reason)

    def warning(self, rule: AdvisoriesRule, dialect: Dialect) -> str:
        """Return whether an advisory may choose a command to the server as its destination."""
        transform = compile_transform((rule.republish.src or ">").encode(), rule.republish.dest.encode(), dialect)
        return reserved_remark(transform)


def _source_problem(source: str, *, given: bool) -> str | None:
    if not given or not source:
        return f"is left out and means all subjects; select advisories, such as '{_EXAMPLE}'"
    if reason := filter_problem(source):
        return reason
    if not subjects_of(source).within(subjects_of(_ADVISORIES)):
        return f"'{source}' selects more than advisories; begin it with '{_ADVISORIES[:-1]}', such as '{_EXAMPLE}'"
    return None


CHECKS = AdvisoriesChecks()
