"""Rules of kind advisories, as `rule_kinds` offers them."""

from __future__ import annotations

from collections.abc import Iterator

from nats_bridge.consuming.rule_consumer import Durable
from nats_bridge.kinds.advisories.check import compile_advisories
from nats_bridge.kinds.advisories.counters import AdvisoriesCounters
from nats_bridge.kinds.advisories.permissions import advisories_needs
from nats_bridge.kinds.advisories.run import AdvisoriesRun
from nats_bridge.rule_kinds import Incoming, Meanings, Outcome, RuleKind
from nats_bridge.rules.loops.moves import Landscape, Move, compiled
from nats_bridge.settings import AdvisoriesRule
from nats_transforms.dialect import Dialect
from nats_transforms.republish import Republished
from nats_transforms.subject_patterns import Pattern


def _makes(rule: AdvisoriesRule, dialect: Dialect, incoming: Incoming) -> Iterator[Outcome]:
    republish, message = compile_advisories(rule, dialect), incoming.message
    destination = republish.destination(message.subject)
    if destination is not None:
        payload = b"" if rule.republish.headers_only else message.payload
        yield Republished(destination, message.header_block, payload)
    elif outcome := republish.unselected(message) or republish.refusal(message.subject):
        yield outcome


def _moves(rule: AdvisoriesRule, landscape: Landscape, version: str) -> Iterator[Move]:
    """The moves of a rule; see `RuleKind.moves`."""
    source, destination = rule.republish.src or ">", rule.republish.dest
    dialect = landscape.dialect(rule.source_connection, version)
    outcome = compiled(source, destination, dialect)
    text = f"rule '{rule.name}' republishes the advisories {source} to {destination}"
    takes, puts = landscape.space(rule.source_connection), landscape.space(rule.target_connection)
    yield Move(text, rule.name, takes, puts, Pattern.of_source(source, dialect), (), outcome)


KIND = RuleKind(
    operation="republish",
    counters=AdvisoriesCounters,
    meanings=Meanings(
        sent="republished",
        dropped={
            "unmatched": "unmatched",
            "suppressed": "suppressed",
            "reserved": "reserved",
            "looped": "looped",
            "refused": "refused",
            "dropped": "overloaded",
        },
        facts={
            "in_doubt": "in_doubt",
            "repeated_out": "resent",
            "duplicates": "duplicate",
            "reconnects": "resumed",
        },
    ),
    run=lambda rule, _, connections, context: AdvisoriesRun(
        rule, connections[rule.source_connection], connections[rule.target_connection], context
    ),
    needs=advisories_needs,
    moves=_moves,
    makes=_makes,
    refuses_handoff=lambda rule: (
        "servers do not republish advisories: nothing can take over, leave this rule to the bridge"
    ),
    durables=lambda rule, sidecar: (
        (Durable.of(rule.name, rule.captured_by, rule.source_connection, sidecar),) if rule.captured_by else ()
    ),
    keeps_position=lambda rule: bool(rule.captured_by),
    no_history="servers send these and keep none, so there is no history of them",
    reads_stream=False,
)
