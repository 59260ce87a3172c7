"""Reads the metrics of a sidecar: the one place that knows where each value comes from.

Nothing is kept here: values are read when they are collected.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, TypeAlias, get_args

from nats_bridge.bridge.kinds.kind import RECEIVED
from nats_bridge.bridge.kinds.registry import kind_of
from nats_bridge.bridge.observability.latency import Latencies
from nats_bridge.bridge.observability.telemetry import names
from nats_bridge.bridge.observability.telemetry.names import Metric
from nats_bridge.bridge.rules.supervisor import SeatState

if TYPE_CHECKING:
    from nats_bridge.bridge.app.sidecar import Sidecar
    from nats_bridge.bridge.rules.supervisor import RuleSeat

__all__ = ["VERSION", "Reading", "readings"]

VERSION: Final = version("nats-bridge")
_RESULTS: Final = ("applied", "refused", "unchanged")


Reading: TypeAlias = tuple[Metric, tuple[str, ...], float | Latencies]
"""A metric, the values of its labels in their order, and its value."""


def readings(sidecar: Sidecar) -> Iterator[Reading]:
    """Every metric that has a value; may be called in another thread than the sidecar's."""
    seats = tuple(sidecar.seats)
    yield names.READY, (), int(sidecar.started and not sidecar.draining and all(seat.ready for seat in seats))
    yield names.START_TIME, (), sidecar.began
    yield names.BUILD_INFO, (VERSION,), 1
    for name, link in tuple(sidecar.links.items()):
        yield names.CONNECTION_UP, (name,), int(link.client.is_connected)
        yield names.CONNECTION_RECONNECTS, (name,), link.reconnects
    # From the first moment on, so that a rate sees the first one.
    for result, count in {**dict.fromkeys(_RESULTS, 0), **sidecar.reloads}.items():
        yield names.RELOADS, (result,), count
    for seat in seats:
        yield from _counted(seat)
        yield from _measured(seat, sidecar.began)


def _counted(seat: RuleSeat) -> Iterator[Reading]:
    labels, meanings, totals = (seat.rule.name, seat.rule.kind), kind_of(seat.rule).meanings, seat.measures.totals()
    yield names.RECEIVED_MESSAGES, labels, totals.get(RECEIVED, 0)
    yield names.SENT_MESSAGES, labels, totals.get(meanings.sent, 0)
    yield names.RECEIVED_BYTES, labels, seat.measures.bytes_in
    yield names.SENT_BYTES, labels, totals.get("bytes_out", 0)
    for counter, reason in meanings.dropped.items():
        yield names.DROPPED, (*labels, reason), totals.get(counter, 0)
    for counter, fact in meanings.facts.items():
        yield names.FACTS[fact], labels, totals.get(counter, 0)
    for counter in meanings.events:
        yield names.EVENTS, (*labels, counter), totals.get(counter, 0)


def _measured(seat: RuleSeat, started_at: float) -> Iterator[Reading]:
    labels, measures, now = (seat.rule.name, seat.rule.kind), seat.measures, seat.state
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
    yield names.RULE_READY, labels, int(seat.ready)
    for state in get_args(SeatState):
        yield names.RULE_STATE, (*labels, state), int(state == now)
    if (leads := seat.leader) is not None:
        yield names.LEADER, labels, int(leads)
    yield names.PUBLISH, labels, measures.publish
    yield names.END_TO_END, labels, measures.end_to_end
