"""Reading the metrics of a sidecar: the one place that says where each value comes from.

Nothing is kept here: readers ask when somebody collects, and the values are those of the moment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, get_args

from nats_bridge.bridge.kinds.kind import RECEIVED
from nats_bridge.bridge.kinds.registry import kind_named
from nats_bridge.bridge.observability.latency import Latencies
from nats_bridge.bridge.observability.rule_metrics import Measures
from nats_bridge.bridge.observability.telemetry import names
from nats_bridge.bridge.observability.telemetry.names import Metric
from nats_bridge.bridge.rules.supervisor import SeatState

__all__ = ["ConnectionFacts", "Facts", "Reading", "RuleFacts", "readings"]


@dataclass(frozen=True, slots=True)
class RuleFacts:
    """The readings of a rule; `leader` is None in a sidecar without leadership."""

    name: str
    kind: str
    state: str
    ready: bool
    leader: bool | None
    measures: Measures


@dataclass(frozen=True, slots=True)
class ConnectionFacts:
    """The readings of a connection."""

    name: str
    up: bool
    reconnects: int


@dataclass(frozen=True, slots=True)
class Facts:
    """The readings of a sidecar at a moment.

    Attributes:
        version: of the program.
        started_at: seconds since 1970.
        ready: as `/readyz` says.
        rules: in the order of the configuration.
        connections: those of the rules.
        reloads: how many there were of each result.
    """

    version: str
    started_at: float
    ready: bool
    rules: Sequence[RuleFacts]
    connections: Sequence[ConnectionFacts]
    reloads: Mapping[str, int]


Reading: TypeAlias = tuple[Metric, tuple[str, ...], float | Latencies]
"""A metric, the values of its labels in their order, and its value."""


def readings(facts: Facts) -> Iterator[Reading]:
    """Every metric that has a value."""
    yield names.READY, (), int(facts.ready)
    yield names.START_TIME, (), facts.started_at
    yield names.BUILD_INFO, (facts.version,), 1
    for connection in facts.connections:
        yield names.CONNECTION_UP, (connection.name,), int(connection.up)
        yield names.CONNECTION_RECONNECTS, (connection.name,), connection.reconnects
    for result, count in facts.reloads.items():
        yield names.RELOADS, (result,), count
    for rule in facts.rules:
        yield from _counted(rule)
        yield from _measured(rule, facts.started_at)


def _counted(rule: RuleFacts) -> Iterator[Reading]:
    labels, meanings, totals = (rule.name, rule.kind), kind_named(rule.kind).meanings, rule.measures.totals()
    yield names.RECEIVED_MESSAGES, labels, totals.get(RECEIVED, 0)
    yield names.SENT_MESSAGES, labels, totals.get(meanings.sent, 0)
    yield names.RECEIVED_BYTES, labels, rule.measures.bytes_in
    yield names.SENT_BYTES, labels, totals.get("bytes_out", 0)
    for counter, reason in meanings.dropped.items():
        yield names.DROPPED, (*labels, reason), totals.get(counter, 0)
    for counter, fact in meanings.facts.items():
        yield names.FACTS[fact], labels, totals.get(counter, 0)
    for counter in meanings.events:
        yield names.EVENTS, (*labels, counter), totals.get(counter, 0)


def _measured(rule: RuleFacts, started_at: float) -> Iterator[Reading]:
    labels, measures = (rule.name, rule.kind), rule.measures
    lag_messages, lag_seconds = measures.lag_messages(), measures.lag_seconds()
    if lag_messages is not None:
        yield names.LAG_MESSAGES, labels, lag_messages
    if lag_seconds is not None:
        yield names.LAG_SECONDS, labels, lag_seconds
    if (headroom := measures.headroom()) is not None:
        yield names.HEADROOM, labels, headroom
    # From the first moment on, or a rule that stalls at once would stay unseen.
    yield names.PROGRESS, labels, measures.progress_ns / 1e9 or started_at
    yield names.IN_FLIGHT, labels, measures.in_flight()
    yield names.RULE_READY, labels, int(rule.ready)
    for state in get_args(SeatState):
        yield names.RULE_STATE, (*labels, state), int(state == rule.state)
    if rule.leader is not None:
        yield names.LEADER, labels, int(rule.leader)
    yield names.PUBLISH, labels, measures.publish
    yield names.END_TO_END, labels, measures.end_to_end
