"""Republish rules, as `registry` offers them."""

from __future__ import annotations

from collections.abc import Iterator

from nats_bridge.bridge.consuming.counters import READING_FACTS
from nats_bridge.bridge.consuming.rule_consumer import Durable, consumer_owner, durable_name
from nats_bridge.bridge.kinds.kind import Meanings, RuleKind
from nats_bridge.bridge.kinds.republish.counters import RuleCounters
from nats_bridge.bridge.kinds.republish.handoff import republish_handoff, take_over
from nats_bridge.bridge.kinds.republish.moves import republish_moves
from nats_bridge.bridge.kinds.republish.permissions import republish_needs
from nats_bridge.bridge.kinds.republish.run import make_run
from nats_bridge.bridge.settings import RepublishRule
from nats_bridge.bridge.settings.rule_tests import GivenMessage
from nats_bridge.transforms.dialect import Dialect
from nats_bridge.transforms.republish import Refusal, Republished, StoredMessage, compile_republish
from nats_bridge.transforms.subject import matcher

__all__ = ["KIND"]


def _durables(rule: RepublishRule, sidecar: str) -> tuple[Durable, ...]:
    if not rule.durable:
        return ()
    name, owner = durable_name(sidecar, rule.name), consumer_owner(sidecar, rule.name)
    return (Durable(rule.name, rule.stream, rule.source_connection, name, owner),)


def _makes(
    rule: RepublishRule, dialect: Dialect, given: GivenMessage, message: StoredMessage
) -> Iterator[Republished | Refusal]:
    excludes = matcher(tuple(pattern.encode() for pattern in rule.exclude))
    if excludes is not None and excludes(message.subject):
        return
    if rule.where is not None and not rule.where.condition.holds(message.header_block):
        return
    republish = compile_republish(rule.stream, rule.republish.native(), dialect)
    if made := republish.apply(message, given.last_sequence) or republish.refusal(message.subject):
        yield made


KIND = RuleKind(
    operation="republish",
    counters=RuleCounters,
    meanings=Meanings(
        sent="republished",
        dropped={name: name for name in ("unmatched", "suppressed", "looped", "too_large")},
        facts={**READING_FACTS, "in_doubt": "in_doubt", "repeated_out": "resent", "vanished": "vanished"},
        events=("gaps", "shorter_streams", "last_sequence_lookups", "last_sequence_uncertain", "removals"),
    ),
    run=make_run,
    needs=republish_needs,
    moves=republish_moves,
    makes=_makes,
    refuses_handoff=lambda rule: "",
    handoff=republish_handoff,
    take_over=take_over,
    durables=_durables,
    keeps_position=lambda rule: rule.durable,
    no_history="",
    reads_stream=True,
)
