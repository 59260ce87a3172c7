"""Republish rules, as `rule_kinds` offers them."""

from __future__ import annotations

from collections.abc import Iterator

from nats_bridge.consuming.rule_consumer import Durable
from nats_bridge.kinds.republish.check import compile_rule
from nats_bridge.kinds.republish.counters import RuleCounters
from nats_bridge.kinds.republish.run import RepublishRun
from nats_bridge.late_imports import late
from nats_bridge.observability.counters import READING_FACTS
from nats_bridge.rule_kinds import Incoming, Meanings, Outcome, RuleKind
from nats_bridge.rules.loops.moves import Landscape, Move, compiled
from nats_bridge.settings import RepublishRule
from nats_transforms.dialect import Dialect
from nats_transforms.subject_patterns import Pattern

with late(f"{__package__}.handoff", f"{__package__}.permissions"):  # asked for by commands, not by a start
    from nats_bridge.kinds.republish import handoff, permissions


def _makes(rule: RepublishRule, dialect: Dialect, incoming: Incoming) -> Iterator[Outcome]:
    republish, message = compile_rule(rule, dialect), incoming.message
    outcome: Outcome | None = republish.unselected(message) or republish.apply(message, incoming.last_sequence)
    if outcome := outcome or republish.refusal(message.subject):
        yield outcome


def _moves(rule: RepublishRule, landscape: Landscape, version: str) -> Iterator[Move]:
    """The moves of a rule; see `RuleKind.moves`."""
    source, destination = rule.republish.src or ">", rule.republish.dest
    dialect = landscape.dialect(rule.source_connection, version)
    outcome = compiled(source, destination, dialect)
    text = f"rule '{rule.name}' republishes {source} to {destination}"
    space, leaves = landscape.space(rule.target_connection), tuple(map(Pattern.of, rule.exclude))
    for store in landscape.stores(rule.source_connection, rule.stream):
        yield Move(text, rule.name, store, space, Pattern.of_source(source, dialect), leaves, outcome)


KIND = RuleKind(
    operation="republish",
    counters=RuleCounters,
    meanings=Meanings(
        sent="republished",
        dropped={name: name for name in ("unmatched", "suppressed", "reserved", "looped", "too_large")},
        facts={**READING_FACTS, "in_doubt": "in_doubt", "repeated_out": "resent", "vanished": "vanished"},
    ),
    run=lambda rule, _, connections, context: RepublishRun(
        rule, connections[rule.source_connection], connections[rule.target_connection], context
    ),
    needs=lambda rule, settings, dialect, known: permissions.republish_needs(rule, settings, dialect, known),
    moves=_moves,
    makes=_makes,
    handoff=lambda rule, settings, connections, wish: (handoff.hand_back if wish.back else handoff.hand_over)(
        rule, settings.name, connections
    ),
    take_over=lambda rule, settings, connections, answer, wish: handoff.take_over(
        rule, settings, connections, answer, wish
    ),
    durables=lambda rule, sidecar: (
        (Durable.of(rule.name, rule.stream, rule.source_connection, sidecar),) if rule.durable else ()
    ),
    no_history=(
        "republished messages reach the subscribers of the moment. To republish the history, let the sidecar begin with"
        " start: first. To analyse it, read the stream with Spark (format jetstream)"
    ),
    keeps_position=lambda rule: rule.durable,
    reads_stream=True,
)
