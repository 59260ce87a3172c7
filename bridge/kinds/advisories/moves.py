"""The moves of messages through an advisories rule."""

from __future__ import annotations

from collections.abc import Iterator

from nats_bridge.bridge.rules.loops.moves import Impossible, Landscape, Move, compiled
from nats_bridge.bridge.rules.loops.subject_patterns import Pattern
from nats_bridge.bridge.settings import AdvisoriesRule

__all__ = ["advisories_moves"]


def advisories_moves(rule: AdvisoriesRule, landscape: Landscape, version: str) -> Iterator[Move]:
    """The moves of a rule; see `RuleKind.moves`. None for a transform that the rule's own check refuses."""
    source, destination = rule.republish.src or ">", rule.republish.dest
    outcome = compiled(source, destination, landscape.dialect(rule.source_connection, version))
    if not isinstance(outcome, Impossible):
        text = f"rule '{rule.name}' republishes the advisories {source} to {destination}"
        takes, puts = landscape.space(rule.source_connection), landscape.space(rule.target_connection)
        yield Move(text, rule.name, takes, puts, Pattern.of_source(source), (), outcome)
