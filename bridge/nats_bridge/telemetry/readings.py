"""Reads the metrics of a sidecar. Only this module knows the source of each value.

Nothing is kept here: values are read when they are collected.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, TypeAlias, get_args

from nats_bridge.observability.latency import Latencies
from nats_bridge.rule_kinds import BYTES_OUT, RECEIVED, kind_of
from nats_bridge.rules.supervision import SupervisorState
from nats_bridge.telemetry import names
from nats_bridge.telemetry.names import Metric

if TYPE_CHECKING:
    from nats_bridge.app.sidecar import Sidecar
    from nats_bridge.rules.supervisor import RuleSupervisor


VERSION: Final = version("nats-bridge")
_RESULTS: Final = ("applied", "refused", "unchanged")


Reading: TypeAlias = tuple[Metric, tuple[str, ...], float | Latencies]
"""A metric, the values of its labels in their order, and its value."""


def readings(sidecar: Sidecar) -> Iterator[Reading]:
    """Yield every metric that has a value. May be called in another thread than the sidecar's."""
    supervisors = tuple(sidecar.supervisors)
    yield (
        names.READY,
        (),
        int(sidecar.started and not sidecar.draining and all(supervisor.ready for supervisor in supervisors)),
    )
    yield names.START_TIME, (), sidecar.began
    yield names.BUILD_INFO, (VERSION,), 1
    for name, connection in tuple(sidecar.connections.items()):
        yield names.CONNECTION_UP, (name,), int(connection.client.is_connected)
        yield names.UNTESTED_SERVER, (name,), int(connection.untested_server is not None)
        yield names.CONNECTION_RECONNECTS, (name,), connection.reconnects
    # From the first moment on, so that a rate sees the first one.
    for result, count in {**dict.fromkeys(_RESULTS, 0), **sidecar.reloader.results}.items():
        yield names.RELOADS, (result,), count
    for supervisor in supervisors:
        yield from _counted(supervisor)
        yield from _measured(supervisor, sidecar.began)
        for metric, labels, value in supervisor.run.readings() if supervisor.run is not None else ():
            yield metric, (supervisor.rule.name, supervisor.rule.kind, *labels), value


def _counted(supervisor: RuleSupervisor) -> Iterator[Reading]:
    rule, totals = supervisor.rule, supervisor.metrics.totals()
    labels, kind = (rule.name, rule.kind), kind_of(rule)
    meanings = kind.meanings
    yield names.RECEIVED_MESSAGES, labels, totals.get(RECEIVED, 0)
    yield names.SENT_MESSAGES, labels, totals.get(meanings.sent, 0)
    yield names.RECEIVED_BYTES, labels, supervisor.metrics.bytes_in
    yield names.SENT_BYTES, labels, totals.get(BYTES_OUT, 0)
    for counter, reason in meanings.dropped.items():
        yield names.DROPPED, (*labels, reason), totals.get(counter, 0)
    for counter, fact in meanings.facts.items():
        yield names.FACTS[fact], labels, totals.get(counter, 0)
    for counter in kind.events:
        yield names.EVENTS, (*labels, counter), totals.get(counter, 0)


def _measured(supervisor: RuleSupervisor, started_at: float) -> Iterator[Reading]:
    labels, metrics, now = (supervisor.rule.name, supervisor.rule.kind), supervisor.metrics, supervisor.state
    lag_messages, lag_seconds = metrics.lag_messages(), metrics.lag_seconds()
    if lag_messages is not None:
        yield names.LAG_MESSAGES, labels, lag_messages
    if lag_seconds is not None:
        yield names.LAG_SECONDS, labels, lag_seconds
    if (headroom := metrics.headroom()) is not None:
        yield names.HEADROOM, labels, headroom
    # From the first moment on, or a rule that stalls at once would stay unseen.
    yield names.PROGRESS, labels, metrics.progress_ns / 1e9 or started_at
    yield names.IN_FLIGHT, labels, metrics.in_flight()
    yield names.RULE_READY, labels, int(supervisor.ready)
    for state in get_args(SupervisorState):
        yield names.RULE_STATE, (*labels, state), int(state == now)
    if (leads := supervisor.leader) is not None:
        yield names.LEADER, labels, int(leads)
    yield names.PUBLISH, labels, metrics.publish
    yield names.END_TO_END, labels, metrics.end_to_end
