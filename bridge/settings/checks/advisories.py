"""Rules of kind `advisories`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from nats_bridge.bridge.settings.checks.patterns import covers, filter_problem, overlap, reserved_prefix
from nats_bridge.bridge.settings.checks.republishing import destination_problem
from nats_bridge.bridge.settings.problems import Problem
from nats_bridge.bridge.settings.rules import AdvisoriesRule
from nats_bridge.marked_yaml import Path

__all__ = ["advisories_problems"]

_ADVISORIES: Final = "$JS.EVENT.ADVISORY.>"
_EXAMPLE: Final = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.*.*"
_ABOUT_A_MESSAGE: Final = ("MAX_DELIVERIES", "MSG_TERMINATED", "MSG_NAKED")
"""The consumer's advisories that name a message, by `stream_seq` (2.9 and newer)."""


def advisories_problems(rule: AdvisoriesRule, at: Path, version: str) -> Iterator[Problem]:
    """What is wrong with a rule.

    Args:
        rule: well formed.
        at: where it stands.
        version: its dialect.
    """
    source, destination = rule.republish.src, rule.republish.dest
    if reason := _source_problem(source, given="src" in rule.republish.model_fields_set):
        yield Problem((*at, "republish", "src"), reason)
        return
    if rule.attach_message and not any(overlap(source, _about(kind)) for kind in _ABOUT_A_MESSAGE):
        yield Problem(
            (*at, "attach_message"),
            f"'{source}' selects no advisory about a message, such as CONSUMER.MAX_DELIVERIES,"
            " CONSUMER.MSG_TERMINATED or CONSUMER.MSG_NAKED; select one of them, or remove this",
        )
    if reason := destination_problem(source, destination, version):
        yield Problem((*at, "republish", "dest"), reason)
    elif space := reserved_prefix(destination):
        yield Problem(
            (*at, "republish", "dest"),
            f"'{destination}' lies under '{space}', which belongs to servers and replies; use another subject",
        )


def _source_problem(source: str, *, given: bool) -> str | None:
    if not given or not source:
        return f"is left out and means all subjects; select advisories, such as '{_EXAMPLE}'"
    if reason := filter_problem(source):
        return reason
    if not covers(_ADVISORIES, source):
        return f"'{source}' selects more than advisories; begin it with '{_ADVISORIES[:-1]}', such as '{_EXAMPLE}'"
    return None


def _about(kind: str) -> str:
    return f"$JS.EVENT.ADVISORY.CONSUMER.{kind}.*.*"
