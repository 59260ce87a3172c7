"""The moves of messages through a republish rule."""

from __future__ import annotations

from collections.abc import Iterator

from nats_bridge.bridge.rules.loops.moves import Impossible, Landscape, Move, compiled
from nats_bridge.bridge.rules.loops.subject_patterns import Pattern
from nats_bridge.bridge.settings import RepublishRule

__all__ = ["republish_moves"]


def republish_moves(rule: RepublishRule, landscape: Landscape, version: str) -> Iterator[Move]:
    """The moves of a rule; see `RuleKind.moves`. None for a transform that the rule's own check refuses."""
    source, destination = rule.republish.src or ">", rule.republish.dest
    outcome = compiled(source, destination, landscape.dialect(rule.source_connection, version))
    if isinstance(outcome, Impossible):
        return
    text = f"rule '{rule.name}' republishes {source} to {destination}"
    space, leaves = landscape.space(rule.target_connection), tuple(map(Pattern.of, rule.exclude))
    for store in landscape.stores(rule.source_connection, rule.stream):
        yield Move(text, rule.name, store, space, Pattern.of_source(source), leaves, outcome)
