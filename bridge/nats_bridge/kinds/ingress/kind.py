"""Rules of kind subject_transform, as `rule_kinds` offers them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nats_bridge.kinds.ingress.check import compile_ingress
from nats_bridge.kinds.ingress.encoder import IngressCounters
from nats_bridge.kinds.ingress.model import SubjectTransformRule
from nats_bridge.kinds.ingress.run import IngressRun
from nats_bridge.rule_kinds import Incoming, Meanings, Opened, Outcome, RuleKind
from nats_bridge.rules.context import RuleContext
from nats_bridge.rules.loops.moves import Landscape, Move, compiled
from nats_bridge.settings import Settings
from nats_transforms.dialect import Dialect
from nats_transforms.republish import Republished
from nats_transforms.selection import unmatched
from nats_transforms.subject_patterns import Pattern

if TYPE_CHECKING:
    from nats_bridge.permissions.need import Need
    from nats_bridge.permissions.stream_facts import KnownStreams
    from nats_bridge.rules.handoff.answer import Handoff, Wish

# Only commands need the modules `handoff` and `permissions`, so they are imported on use.


class IngressKind(RuleKind[SubjectTransformRule]):
    """Rules of kind subject_transform."""

    operation = "transform"
    counters = IngressCounters
    meanings = Meanings(
        sent="passed_on",
        dropped={name: name for name in ("refused", "overloaded", "too_large")},
        facts={"in_doubt": "in_doubt", "repeated_out": "resent", "reconnects": "resumed"},
    )
    no_history = (
        "it changes messages before they are stored, so there is no history to put through it. Copy what the stream"
        " holds with a rule of kind sources that has this transform"
    )

    def run(
        self, rule: SubjectTransformRule, settings: Settings, connections: Opened, context: RuleContext
    ) -> IngressRun:
        """Create the run of a rule."""
        return IngressRun(rule, connections[rule.source_connection], context)

    def needs(
        self, rule: SubjectTransformRule, settings: Settings, dialect: Dialect, known: KnownStreams
    ) -> Iterator[Need]:
        """Return the permissions that the users of a rule's connections need."""
        from nats_bridge.kinds.ingress.permissions import ingress_needs

        return ingress_needs(rule, settings, dialect)

    def moves(self, rule: SubjectTransformRule, landscape: Landscape, version: str) -> Iterator[Move]:
        """Yield the moves of messages through a rule."""
        source, destination = rule.subject_transform.src or ">", rule.subject_transform.dest
        dialect = landscape.dialect(rule.source_connection, version)
        outcome = compiled(source, destination, dialect)
        if destination:
            space = landscape.space(rule.source_connection)
            text = f"rule '{rule.name}' transforms {source} to {destination}"
            yield Move(text, rule.name, space, space, Pattern.of_source(source, dialect), (), outcome)

    def makes(self, rule: SubjectTransformRule, dialect: Dialect, incoming: Incoming) -> Iterator[Outcome]:
        """Yield the results of a rule for one message."""
        transform, message = compile_ingress(rule, dialect), incoming.message
        if (destination := transform.apply(message.subject)) is not None:
            yield Republished(destination, message.header_block, message.payload)
        else:
            yield unmatched(message.subject, (transform.pattern,))

    async def handoff(self, rule: SubjectTransformRule, settings: Settings, connections: Opened, wish: Wish) -> Handoff:
        """Return the native configuration that takes over from a rule, or gives back to it."""
        from nats_bridge.kinds.ingress.handoff import hand_back, hand_over

        return await (hand_back if wish.back else hand_over)(rule, settings, connections)


KIND = IngressKind()
