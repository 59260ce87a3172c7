"""The moves of messages through a subject_transform rule."""

from __future__ import annotations

from collections.abc import Iterator

from nats_bridge.bridge.rules.loops.moves import Impossible, Landscape, Move, compiled
from nats_bridge.bridge.rules.loops.subject_patterns import Pattern
from nats_bridge.bridge.settings import SubjectTransformRule

__all__ = ["ingress_moves"]


def ingress_moves(rule: SubjectTransformRule, landscape: Landscape, version: str) -> Iterator[Move]:
    """The moves of a rule; see `RuleKind.moves`. None for a transform that the rule's own check refuses."""
    source, destination = rule.subject_transform.src or ">", rule.subject_transform.dest
    outcome = compiled(source, destination, landscape.dialect(rule.source_connection, version))
    if destination and not isinstance(outcome, Impossible):
        space = landscape.space(rule.source_connection)
        text = f"rule '{rule.name}' transforms {source} to {destination}"
        yield Move(text, rule.name, space, space, Pattern.of_source(source), (), outcome)
