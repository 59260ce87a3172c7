"""Republish rules, as `rule_kinds` offers them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nats_bridge.consuming.consumer_plan import Durable
from nats_bridge.kinds.republish.compiled import compile_rule
from nats_bridge.kinds.republish.counters import RuleCounters
from nats_bridge.kinds.republish.model import RepublishRule
from nats_bridge.kinds.republish.run import RepublishRun
from nats_bridge.observability.counters import READING_FACTS
from nats_bridge.rule_kinds import Incoming, Meanings, Opened, Outcome, RuleKind
from nats_bridge.rules.context import RuleContext
from nats_bridge.rules.loops.moves import Landscape, Move, compiled
from nats_bridge.settings import Settings
from nats_transforms.dialect import Dialect
from nats_transforms.subject_patterns import Pattern

if TYPE_CHECKING:
    from nats_bridge.permissions.need import Need
    from nats_bridge.permissions.stream_facts import KnownStreams
    from nats_bridge.rules.handoff.answer import Handoff, Wish

# Only commands need the modules `handoff` and `permissions`, so they are imported on use.


class RepublishKind(RuleKind[RepublishRule]):
    """Rules of kind republish."""

    operation = "republish"
    counters = RuleCounters
    meanings = Meanings(
        sent="republished",
        dropped={name: name for name in ("unmatched", "suppressed", "reserved", "looped", "too_large")},
        facts={**READING_FACTS, "in_doubt": "in_doubt", "repeated_out": "resent", "vanished": "vanished"},
    )
    reads_stream = True
    no_history = (
        "republished messages reach the subscribers of the moment. To republish the history, let the sidecar begin with"
        " start: first. To analyse it, read the stream with Spark (format jetstream)"
    )

    def run(self, rule: RepublishRule, settings: Settings, connections: Opened, context: RuleContext) -> RepublishRun:
        """Create the run of a rule."""
        source, target = connections[rule.source_connection], connections[rule.target_connection]
        return RepublishRun(rule, source, target, context)

    def needs(self, rule: RepublishRule, settings: Settings, dialect: Dialect, known: KnownStreams) -> Iterator[Need]:
        """Return the permissions that the users of a rule's connections need."""
        from nats_bridge.kinds.republish.permissions import republish_needs

        return republish_needs(rule, settings, dialect, known)

    def moves(self, rule: RepublishRule, landscape: Landscape, version: str) -> Iterator[Move]:
        """Yield the moves of messages through a rule."""
        source, destination = rule.republish.src or ">", rule.republish.dest
        dialect = landscape.dialect(rule.source_connection, version)
        outcome = compiled(source, destination, dialect)
        text = f"rule '{rule.name}' republishes {source} to {destination}"
        space, leaves = landscape.space(rule.target_connection), tuple(map(Pattern.of, rule.exclude))
        for store in landscape.stores(rule.source_connection, rule.stream):
            yield Move(text, rule.name, store, space, Pattern.of_source(source, dialect), leaves, outcome)

    def makes(self, rule: RepublishRule, dialect: Dialect, incoming: Incoming) -> Iterator[Outcome]:
        """Yield the results of a rule for one message."""
        republish, message = compile_rule(rule, dialect), incoming.message
        outcome: Outcome | None = republish.unselected(message) or republish.apply(message, incoming.last_sequence)
        if outcome := outcome or republish.refusal(message.subject):
            yield outcome

    def keeps_position(self, rule: RepublishRule) -> bool:
        """Return whether another replica resumes a rule where this one drained it."""
        return rule.durable

    def durables(self, rule: RepublishRule, sidecar: str) -> tuple[Durable, ...]:
        """Return the durable consumer that keeps a rule's position."""
        return (Durable.of(rule.name, rule.stream, rule.source_connection, sidecar),) if rule.durable else ()

    async def handoff(self, rule: RepublishRule, settings: Settings, connections: Opened, wish: Wish) -> Handoff:
        """Return the native configuration that takes over from a rule, or gives back to it."""
        from nats_bridge.kinds.republish.handoff import hand_back, hand_over

        return await (hand_back if wish.back else hand_over)(rule, settings, connections)

    async def take_over(
        self, rule: RepublishRule, settings: Settings, connections: Opened, answer: Handoff, wish: Wish
    ) -> Handoff | None:
        """Republish up to the server's first message."""
        from nats_bridge.kinds.republish.handoff import take_over

        return await take_over(rule, settings, connections, answer, wish)


KIND = RepublishKind()
