"""Rules of kind `republish`."""

from __future__ import annotations

from collections.abc import Iterator

from nats_bridge.bridge.settings.checks.dialects import candidates
from nats_bridge.bridge.settings.checks.exclusions import exclusion_problems
from nats_bridge.bridge.settings.checks.patterns import filter_problem, has_white_space
from nats_bridge.bridge.settings.checks.transforming import refusal
from nats_bridge.bridge.settings.problems import Problem
from nats_bridge.bridge.settings.rules import RepublishRule
from nats_bridge.marked_yaml import Path

__all__ = ["destination_problem", "republish_problems"]


def republish_problems(rule: RepublishRule, at: Path, version: str) -> Iterator[Problem]:
    """What is wrong with a rule.

    Args:
        rule: well formed.
        at: where it stands.
        version: its dialect.
    """
    source, destination = rule.republish.src or ">", rule.republish.dest
    if reason := filter_problem(source):
        yield Problem((*at, "republish", "src"), reason)
        return
    yield from exclusion_problems(rule.exclude, [source], (*at, "exclude"), "republished")
    if reason := destination_problem(source, destination, version):
        yield Problem((*at, "republish", "dest"), reason)
    elif source == destination and "*" not in source and rule.source_connection == rule.target_connection:
        yield Problem(
            (*at, "republish", "dest"),
            f"'{destination}' is where the messages come from: an endless loop; use another subject",
        )


def destination_problem(source: str, destination: str, version: str) -> str | None:
    """Why a valid source cannot be republished to a destination, or None."""
    if not destination:
        return "is empty; nothing would be republished; give the subject to republish to"
    if reason := refusal(source, destination, candidates(version)):
        return reason
    if has_white_space(destination):
        return f"'{destination}' holds white space; no message can be published there"
    return None
