"""The names of metrics, labels and span attributes, the only place that defines them.

A metric has two names: one for Prometheus, by its customs (`nats_bridge_`, base units, `_total`), and one for
OpenTelemetry. The latter follows the semantic conventions for messaging if they define one, and otherwise begins with
`messaging.nats.`, because the conventions do not cover NATS yet. Labels and attributes never contain a subject.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

SYSTEM, SYSTEM_NATS = "messaging.system", "nats"
OPERATION = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION = "messaging.destination.name"
BATCH_COUNT = "messaging.batch.message_count"
BODY_SIZE = "messaging.message.body.size"
RULE = "messaging.nats.bridge.rule"
SEQUENCE = "messaging.nats.stream.sequence"
SUBJECT = "messaging.nats.subject"
"""In spans of single messages only."""

ATTRIBUTES: Mapping[str, str] = MappingProxyType(
    {
        "rule": RULE,
        "kind": "messaging.nats.bridge.kind",
        "reason": "messaging.nats.bridge.reason",
        "event": "messaging.nats.bridge.event",
        "state": "messaging.nats.bridge.state",
        "result": "messaging.nats.bridge.result",
        "connection": "messaging.nats.bridge.connection",
        "stream": "messaging.nats.bridge.stream",
        "source": "messaging.nats.bridge.source",
        "entry": "messaging.nats.bridge.entry",
        "version": "messaging.nats.bridge.version",
    }
)
"""The attribute in OpenTelemetry of every label."""

_Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
_OURS = "messaging.nats.bridge."
_BY_RULE = ("rule", "kind")
_BY_COPY = (*_BY_RULE, "stream", "source", "entry")
_CONVENTIONAL = {
    "messaging.client.consumed.messages": ("receive", "receive"),
    "messaging.client.sent.messages": ("publish", "send"),
    "messaging.client.operation.duration": ("publish", "send"),
}


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric.

    Attributes:
        prometheus: its name, without the `_total` of counters.
        otel: its name in OpenTelemetry.
        unit: as OpenTelemetry writes units.
        help: its meaning, one sentence.
        labels: the label names; `ATTRIBUTES` has those of OpenTelemetry.
    """

    prometheus: str
    otel: str
    kind: _Kind
    unit: str
    help: str
    labels: tuple[str, ...] = _BY_RULE

    @property
    def operation(self) -> tuple[str, str] | None:
        """The conventions' name and type of the counted operation; None for other metrics."""
        return _CONVENTIONAL.get(self.otel)

    @property
    def sample_name(self) -> str:
        """The name in queries. A histogram adds `_bucket`, `_sum` and `_count`."""
        return f"{self.prometheus}_total" if self.kind == "counter" else self.prometheus


def _counter(
    name: str, text: str, *, otel: str = "", unit: str = "{message}", labels: tuple[str, ...] = _BY_RULE
) -> Metric:
    return Metric(f"nats_bridge_{name}", otel or _OURS + name.removesuffix("_messages"), "counter", unit, text, labels)


def _gauge(name: str, text: str, *, otel: str = "", unit: str = "1", labels: tuple[str, ...] = _BY_RULE) -> Metric:
    return Metric(f"nats_bridge_{name}", _OURS + (otel or name), "gauge", unit, text, labels)


def _histogram(name: str, text: str, *, otel: str = "") -> Metric:
    return Metric(f"nats_bridge_{name}_seconds", otel or _OURS + name, "histogram", "s", text)


RECEIVED_MESSAGES = _counter(
    "received_messages",
    "Messages received from a stream or publishers.",
    otel="messaging.client.consumed.messages",
)
SENT_MESSAGES = _counter(
    "sent_messages",
    "Messages written to the target or, for copying rules, stored in the target. Each message counts once.",
    otel="messaging.client.sent.messages",
)
RECEIVED_BYTES = _counter("received_bytes", "Header blocks and payloads of received messages.", unit="By")
SENT_BYTES = _counter("sent_bytes", "Bytes written to the target, including protocol lines and repetitions.", unit="By")
DROPPED = _counter("dropped_messages", "Messages received and not sent.", labels=(*_BY_RULE, "reason"))

FACTS: Mapping[str, Metric] = MappingProxyType(
    {
        "duplicate": _counter("duplicate_messages", "Messages not stored again, because the target had them."),
        "redelivered": _counter(
            "redelivered_messages", "Messages that the server delivered again and the rule dropped."
        ),
        "resent": _counter("resent_messages", "Messages written again, because the first write was not confirmed."),
        "lost": _counter("lost_messages", "Messages that were not delivered and are no longer in the stream."),
        "in_doubt": _counter(
            "in_doubt_messages", "Messages in flight when the connection broke, which may have arrived or not."
        ),
        "recovered": _counter("recovered_messages", "Messages that were not delivered at first and were read again."),
        "vanished": _counter("vanished_messages", "Sequences that the stream removed before the rule read them."),
        "out_of_order": _counter(
            "out_of_order_messages", "Copies stored after later copies, because the target did not store them at first."
        ),
        "headers_stripped": _counter(
            "headers_stripped_messages", "Messages copied without a header that the target would refuse."
        ),
        "source_recreated": _counter(
            "source_recreated",
            "Number of times the source was replaced by a stream of the same name.",
            unit="{stream}",
        ),
        "consumer_recreated": _counter(
            "consumer_recreated", "Number of times the rule's consumer was deleted and recreated.", unit="{consumer}"
        ),
        "resumed": _counter("resumed", "Number of times the rule resumed after a lost connection.", unit="{time}"),
    }
)
"""By the short names of `rule_kinds.Meanings`."""

EVENTS = _counter("events", "Everything else that rules count.", unit="{event}", labels=(*_BY_RULE, "event"))
LAG_MESSAGES = _gauge(
    "lag_messages",
    "Messages that the rule has not read yet. Absent while unknown.",
    otel="lag.messages",
    unit="{message}",
)
LAG_SECONDS = _gauge(
    "lag_seconds", "Upper bound for the age of the oldest unprocessed message.", otel="lag.time", unit="s"
)
HEADROOM = _gauge(
    "headroom_messages",
    "Sequences that a source's limits can still remove before they reach the rule's next message.",
    otel="headroom",
    unit="{message}",
)
PROGRESS = _gauge(
    "progress_timestamp_seconds",
    "Time of the last confirmed or dropped message, or of the start, in seconds since 1970.",
    otel="progress_timestamp",
    unit="s",
)
IN_FLIGHT = _gauge(
    "in_flight_messages",
    "Messages received, but neither confirmed nor dropped yet.",
    otel="in_flight",
    unit="{message}",
)
RULE_READY = _gauge("rule_ready", "1 while the rule runs, here or in another replica.")
RULE_STATE = _gauge("rule_state", "1 for the rule's state, 0 for the others.", labels=(*_BY_RULE, "state"))
LEADER = _gauge("leader", "1 if this replica runs the rule, 0 on standby. Absent without leadership.")
PUBLISH = _histogram(
    "publish_duration",
    "Time from a write to its confirmation.",
    otel="messaging.client.operation.duration",
)
END_TO_END = _histogram(
    "end_to_end_latency",
    "Age of a batch's oldest message when the batch was confirmed or, with at_most_once, written.",
)

WATCHED_MISSING = _gauge(
    "watched_missing_messages",
    "Messages of the source that the watched copy lacks. Absent while unknown.",
    otel="watched.missing",
    unit="{message}",
    labels=_BY_COPY,
)
WATCHED_STALLED = _gauge(
    "watched_stalled_seconds",
    "Seconds since a stalled copy last made progress, 0 if it is not stalled.",
    otel="watched.stalled.time",
    unit="s",
    labels=_BY_COPY,
)
WATCHED_STATE = _gauge(
    "watched_state",
    "1 for the copy's present state: complete, behind, stalled or unknown.",
    otel="watched.state",
    labels=(*_BY_COPY, "state"),
)

READY = _gauge("ready", "1 while every rule is ready and the sidecar is not draining.", labels=())
START_TIME = _gauge(
    "start_time_seconds", "Time of the sidecar's start, in seconds since 1970.", otel="start_time", unit="s", labels=()
)
BUILD_INFO = _gauge("build_info", "Always 1.", labels=("version",))
CONNECTION_UP = _gauge("connection_up", "1 while the connection is up.", labels=("connection",))
UNTESTED_SERVER = _gauge(
    "connection_untested_server",
    "1 if this release was tested neither with the server's version nor with a newer version of its release line.",
    labels=("connection",),
)
CONNECTION_RECONNECTS = _counter(
    "connection_reconnects",
    "Number of times the connection was restored after it was lost.",
    unit="{time}",
    labels=("connection",),
)
RELOADS = _counter(
    "config_reloads", "Number of times the configuration was reloaded.", unit="{time}", labels=("result",)
)

METRICS: tuple[Metric, ...] = (
    *(RECEIVED_MESSAGES, SENT_MESSAGES, RECEIVED_BYTES, SENT_BYTES, DROPPED, *FACTS.values(), EVENTS),
    *(LAG_MESSAGES, LAG_SECONDS, HEADROOM, PROGRESS, IN_FLIGHT, RULE_READY, RULE_STATE, LEADER, PUBLISH, END_TO_END),
    *(WATCHED_MISSING, WATCHED_STALLED, WATCHED_STATE),
    *(READY, START_TIME, BUILD_INFO, CONNECTION_UP, UNTESTED_SERVER, CONNECTION_RECONNECTS, RELOADS),
)
"""All of them, in the order of the documentation."""
