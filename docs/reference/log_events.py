"""Every event that the sidecar logs, and its line in the page about logs.

Every line has `event`, `level` and `timestamp`. A rule's lines have `rule` and, if they are about one, `stream` and
`source`. A connection's lines have `connection`. Many lines have `meaning`, which explains the consequence. The package
of a kind of rule contains the events that only this kind logs. A test compares this list with the code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from nats_bridge.observability.log_event import Level, LogEvent
from nats_bridge.observability.log_rate_limit import ALWAYS
from nats_bridge.rule_kinds import KINDS, has_module, module_of

_PAGE: Final = Path(__file__).parents[1] / "logs.md"
_BEGIN, _END = "<!-- events: begin -->\n", "<!-- events: end -->"

BOUND_FIELDS: Final = frozenset({"rule", "stream", "source", "connection", "meaning", "exc_info"})
"""Fields that any event may have."""

_SHARED: Final[dict[str, LogEvent]] = {
    # -- the process
    "sidecar.starting": LogEvent("info", "The process has started.", ("name", "config", "rules")),
    "sidecar.ready": LogEvent(
        "info",
        "Every rule is running, is waiting, is on standby or has failed.",
        ("name", "rules", "waiting", "standby", "failed", "http"),
    ),
    "sidecar.draining": LogEvent("info", "A stop was requested, so rules are draining.", ("reason",)),
    "sidecar.stopped": LogEvent("info", "All rules have finished, and nothing is in flight."),
    "sidecar.ended": LogEvent("error", "An error stopped the sidecar.", ("reason",)),
    "sidecar.refused": LogEvent("error", "The sidecar cannot start.", ("code", "reason")),
    "http.failed": LogEvent("error", "An internal error occurred.", ("path", "reason")),
    "http.watch_failed": LogEvent("error", "An internal error occurred.", ("reason",)),
    # -- reading the configuration again
    "reload.begins": LogEvent("info", "The sidecar is rereading the file.", ("asked_by", "config")),
    "reload.applied": LogEvent("info", "The new configuration is in force.", ("asked_by", "rules")),
    "reload.unchanged": LogEvent("info", "The configuration is unchanged.", ("asked_by",)),
    "reload.refused": LogEvent(
        "error",
        "The new configuration was refused, so the previous one stays in force.",
        ("asked_by", "reason"),
    ),
    "reload.failed": LogEvent("error", "An internal error occurred.", ("reason",)),
    "rule.copied_again": LogEvent(
        "warning",
        "The selection of a source changed, so the rule copies the source again.",
    ),
    # -- connections
    "connection.lost": LogEvent(
        "warning",
        "The connection broke, and the sidecar is reconnecting. Copying rules and leases use separate sockets, and log"
        " separate lines.",
        ("server", "reason"),
    ),
    "connection.back": LogEvent("info", "The connection is up again, with its subscriptions.", ("server", "version")),
    "connection.unreachable": LogEvent(
        "warning",
        "An attempt to reconnect failed.",
        ("server", "reason"),
    ),
    "connection.untested_server": LogEvent(
        "warning",
        "This release has not been compared with the server's version.",
        ("server",),
    ),
    "connection.not_up": LogEvent(
        "warning", "No server has accepted the connection yet, so the sidecar keeps trying.", ("reason",)
    ),
    "connection.closed": LogEvent(
        "error", "The server closed the connection permanently, so the sidecar opens a new one.", ("reason",)
    ),
    "connection.refused": LogEvent(
        "error", "The server refused a publication, request or subscription.", ("server_says",)
    ),
    "connection.does_without": LogEvent("info", "The server refused an optional permission.", ("server_says",)),
    "connection.rejected": LogEvent(
        "error",
        "A server refused the credentials or TLS, so the sidecar reconnects less often.",
        ("server", "reason"),
    ),
    "connection.error": LogEvent("warning", "An error occurred on the connection.", ("error",)),
    "connection.slow_consumer": LogEvent(
        "warning",
        "The server closed the connection, probably as a slow consumer. The sidecar then requests fewer messages at a"
        " time.",
        ("messages",),
    ),
    # -- a rule's life
    "rule.removal_near": LogEvent(
        "warning",
        "The source's limits will soon remove messages that the rule has not read.",
        ("position", "first_sequence", "seconds"),
    ),
    "rule.ready": LogEvent("info", "The rule is running.", ("again",)),
    "rule.waiting": LogEvent("warning", "A stream is missing, or does not accept the rule's messages.", ("reason",)),
    "rule.start_delayed": LogEvent(
        "warning", "A server is not answering, so the rule's start is retried.", ("reason", "again_in")
    ),
    "rule.failed": LogEvent(
        "error", "The rule cannot run. The sidecar restarts it later or, with `fail_fast`, ends.", ("reason",)
    ),
    "rule.stopped": LogEvent("info", "The rule has stopped. The line has its counters."),
    "rule.ended_at_once": LogEvent(
        "warning",
        "The rule ended without draining. Its next start handles the messages in flight.",
    ),
    "rule.start_not_kept": LogEvent(
        "warning",
        "A server is not answering, so `start: new` counts from the time when a replica first leads the rule.",
        ("reason",),
    ),
    "rule.lead_lost": LogEvent("warning", "The lease may have expired, so another replica may be running the rule."),
    "rule.abandoned": LogEvent("error", "The rule did not drain in time.", ("lost",)),
    "rule.abandon_incomplete": LogEvent(
        "error", "The rule was stopped, but its consumer could not be updated.", ("reason",)
    ),
    "rule.drain_incomplete": LogEvent("error", "The rule could not finish the messages in flight.", ("reason",)),
    "rule.drain_failed": LogEvent("error", "The rule could not finish the messages in flight.", ("reason",)),
    "rule.drain_timeout": LogEvent("error", "The rule did not drain in time.", ("seconds",)),
    # -- replicas
    "leadership.ready": LogEvent("info", "The lease bucket is readable and writable.", ("replica", "ttl")),
    "leadership.bucket_created": LogEvent("info", "The lease bucket was created.", ("bucket",)),
    "leadership.few_servers": LogEvent(
        "info",
        "The cluster has too few servers for the bucket's replicas, so the bucket is created later.",
        ("bucket",),
    ),
    "leadership.one_server": LogEvent(
        "warning",
        "The lease bucket has only one replica, although the servers form a cluster.",
        ("bucket", "reason"),
    ),
    "leadership.bucket_deleted": LogEvent(
        "warning", "The lease bucket was deleted, so the sidecar recreates it.", ("bucket",)
    ),
    "leadership.bucket_missing": LogEvent(
        "warning", "The lease bucket is missing and cannot be recreated.", ("reason",)
    ),
    "leadership.no_hints": LogEvent(
        "warning", "The user may not subscribe to the leases, so the sidecar polls them.", ("reason",)
    ),
    "leadership.not_open": LogEvent("warning", "The leases cannot be used yet, so no rule is running.", ("reason",)),
    "leadership.no_answer": LogEvent("warning", "The lease bucket is not answering.", ("reason",)),
    "leadership.refused": LogEvent("warning", "The lease bucket refused to store a lease.", ("reason",)),
    "leadership.leaves_server": LogEvent(
        "warning",
        "The lease bucket is not answering, so the sidecar tries another server.",
        ("server",),
    ),
    "leadership.leads": LogEvent("info", "This replica now leads the rule.", ("term",)),
    "leadership.lost": LogEvent("warning", "This replica no longer leads the rule.", ("term",)),
    "leadership.hands_over": LogEvent(
        "info", "With `share`, this replica hands the rule to a replica that leads fewer rules.", ("term",)
    ),
    "leadership.released": LogEvent("info", "This replica released its lease.", ("term", "stored")),
    "leadership.failed": LogEvent("error", "An internal error occurred.", ("reason",)),
    # -- what rules meet
    "rule.not_ready": LogEvent(
        "warning", "The rule has not been ready for ten seconds.", ("waiting_for", "for_seconds")
    ),
    "rule.stream_not_seen": LogEvent("warning", "A request for the stream's state failed.", ("reason",)),
    "rule.reserved_subject": LogEvent(
        "warning", "A message was not published, because it would be a command to the server.", ("subject", "reason")
    ),
    # -- reading a stream
    "reader.consumer_away": LogEvent(
        "warning",
        "The ephemeral consumer's server was down, so the rule recreates the consumer.",
        ("consumer", "reason"),
    ),
    "reader.waiting": LogEvent(
        "warning", "The server is not answering a request for a consumer or a range.", ("reason",)
    ),
    "reader.recovered": LogEvent(
        "info", "The rule reread messages that were missing between two deliveries.", ("consumer", "messages", "upto")
    ),
    "reader.unbound": LogEvent(
        "warning",
        "The server considers the subscription inactive, so the rule resubscribes.",
        ("consumer",),
    ),
    "reader.foreign_publisher": LogEvent(
        "warning",
        "Another client is publishing to the consumer's deliver subject. The rule ignores these messages.",
        ("reason",),
    ),
    "reader.consumer_recreated": LogEvent(
        "warning", "The consumer was deleted, and the rule has recreated it.", ("consumer", "after")
    ),
    "reader.consumer_edited": LogEvent(
        "warning",
        "Another client changed the consumer, which may have left out messages. With `at_least_once`, the rule rereads"
        " them. Otherwise, it counts them as `lost`.",
        ("consumer", "field", "found", "expected", "after", "upto", "left_out"),
    ),
    "reader.creation_time_changed": LogEvent(
        "info",
        "The server reports a different creation time for the same stream.",
        ("created", "before"),
    ),
    "reader.stream_recreated": LogEvent("warning", "The source was recreated.", ("created",)),
    "reader.streams_missed": LogEvent(
        "warning",
        "The source was recreated and deleted before the rule could read it.",
        ("streams",),
    ),
    "reader.stream_shorter": LogEvent(
        "warning",
        "The server lost the end of the source.",
        ("position", "last_sequence", "after", "lost"),
    ),
    "consumer.taken_over": LogEvent(
        "warning",
        "Another subscription matches the consumer's inbox, so the rule recreated the consumer.",
        ("consumer", "after"),
    ),
    "consumer.reconfigured": LogEvent(
        "warning",
        "The consumer's configuration did not match the rule, so the rule recreates the consumer at its position.",
        ("consumer", "fields", "after"),
    ),
    "consumer.leaderless": LogEvent(
        "warning",
        "The consumer had no leader for 30 s, so the rule recreates the consumer.",
        ("consumer", "after"),
    ),
    "consumer.stream_shorter": LogEvent(
        "warning",
        "The server lost the end of the source.",
        ("position", "last_sequence"),
    ),
    # -- loops
    "loops.not_seen": LogEvent("warning", "Some streams could not be searched for loops.", ("reason",)),
    "loops.native": LogEvent(
        "warning", "The configuration of the servers contains a loop, even without your rules.", ("reason",)
    ),
    # -- telemetry
    "telemetry.exports": LogEvent("info", "The sidecar exports metrics or traces by OTLP.", ("metrics", "traces")),
    "telemetry.not_exported": LogEvent("warning", "OTLP is configured, but the export cannot start.", ("reason",)),
    "telemetry.no_traces": LogEvent(
        "warning", "Traces are configured without an OTLP exporter, so the sidecar creates no spans.", ("trace",)
    ),
    "telemetry.export_failed": LogEvent("warning", "An OTLP export failed.", ("signal",)),
    "telemetry.last_export_failed": LogEvent("warning", "An OTLP export failed.", ("seconds",)),
}
"""Of the sidecar, and of rules of several kinds."""

EVENTS: Final[dict[str, LogEvent]] = _SHARED | {
    name: event
    for kind in KINDS
    if has_module(kind, "log_events")
    for name, event in module_of(kind, "log_events").EVENTS.items()
}
"""By name."""


_HEADINGS: Final[dict[Level, str]] = {"error": "Errors", "warning": "Warnings", "info": "Information"}


def page() -> str:
    """The page with today's events between its two marks, the worst first. Events with one meaning share a line."""
    before, _, rest = _PAGE.read_text("utf-8").partition(_BEGIN)
    _, _, after = rest.partition(_END)
    parts = "\n".join(f"### {heading}\n\n{_of_level(level)}" for level, heading in _HEADINGS.items())
    return f"{before}{_BEGIN}\n{parts}\n{_END}{after}"


def _of_level(level: Level) -> str:
    names: dict[str, list[str]] = {}
    for name, event in EVENTS.items():
        if event.level == level:
            names.setdefault(event.meaning, []).append(f"`{name}`{'' if name in ALWAYS else '¹'}")
    return "".join(f"- {', '.join(alike)}: {meaning}\n" for meaning, alike in names.items())
