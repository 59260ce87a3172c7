"""Rules of kind subject_transform, as `rule_kinds` offers them."""

from __future__ import annotations

from collections.abc import Iterator

from nats_bridge.kinds.ingress.check import compile_ingress
from nats_bridge.kinds.ingress.encoder import IngressCounters
from nats_bridge.kinds.ingress.run import IngressRun
from nats_bridge.late_imports import late
from nats_bridge.rule_kinds import Incoming, Meanings, Outcome, RuleKind
from nats_bridge.rules.loops.moves import Landscape, Move, compiled
from nats_bridge.settings import SubjectTransformRule
from nats_transforms.dialect import Dialect
from nats_transforms.republish import Republished
from nats_transforms.selection import unmatched
from nats_transforms.subject_patterns import Pattern

with late(f"{__package__}.handoff", f"{__package__}.permissions"):  # asked for by commands, not by a start
    from nats_bridge.kinds.ingress import handoff, permissions


def _makes(rule: SubjectTransformRule, dialect: Dialect, incoming: Incoming) -> Iterator[Outcome]:
    transform, message = compile_ingress(rule, dialect), incoming.message
    if (destination := transform.apply(message.subject)) is not None:
        yield Republished(destination, message.header_block, message.payload)
    else:
        yield unmatched(message.subject, (transform.pattern,))


def _moves(rule: SubjectTransformRule, landscape: Landscape, version: str) -> Iterator[Move]:
    """The moves of a rule; see `RuleKind.moves`."""
    source, destination = rule.subject_transform.src or ">", rule.subject_transform.dest
    dialect = landscape.dialect(rule.source_connection, version)
    outcome = compiled(source, destination, dialect)
    if destination:
        space = landscape.space(rule.source_connection)
        text = f"rule '{rule.name}' transforms {source} to {destination}"
        yield Move(text, rule.name, space, space, Pattern.of_source(source, dialect), (), outcome)


KIND = RuleKind(
    operation="transform",
    counters=IngressCounters,
    meanings=Meanings(
        sent="passed_on",
        dropped={name: name for name in ("refused", "overloaded", "too_large")},
        facts={"in_doubt": "in_doubt", "repeated_out": "resent", "reconnects": "resumed"},
    ),
    run=lambda rule, _, connections, context: IngressRun(rule, connections[rule.source_connection], context),
    needs=lambda rule, settings, dialect, known: permissions.ingress_needs(rule, settings, dialect, known),
    moves=_moves,
    makes=_makes,
    handoff=lambda rule, _, connections, wish: (handoff.hand_back if wish.back else handoff.hand_over)(
        rule, connections[rule.source_connection]
    ),
    no_history=(
        "it changes messages before they are stored, so there is no history to put through it. Copy what the stream"
        " holds with a rule of kind sources that has this transform"
    ),
    reads_stream=False,
)
