"""Every event that the sidecar logs, and its table in the page about logs.

Every line has `event`, `level` and `timestamp`; a rule's lines have `rule`, and `stream` and `source` where they are
about one; a connection's have `connection`. Many have `meaning`, which says what follows. Events that one kind of rule
logs stand in its package. A test compares this table with the code.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Final

from docs.reference.markdown import table
from nats_bridge.observability.log_event import LogEvent
from nats_bridge.observability.log_rate_limit import ALWAYS
from nats_bridge.rule_kinds import KINDS

_PAGE: Final = Path(__file__).parents[1] / "logs.md"
_BEGIN, _END = "<!-- events: begin -->\n", "<!-- events: end -->"

BOUND_FIELDS: Final = frozenset({"rule", "stream", "source", "connection", "meaning", "exc_info"})
"""Fields that any event may have."""

_SHARED: Final[dict[str, LogEvent]] = {
    # -- the process
    "sidecar.starting": LogEvent("info", "The process has started.", ("name", "config", "rules")),
    "sidecar.ready": LogEvent(
        "info",
        "The sidecar has tried every rule: it runs, waits, is on standby, or failed.",
        ("name", "rules", "waiting", "standby", "failed", "http"),
    ),
    "sidecar.draining": LogEvent("info", "A stop was requested; rules drain.", ("reason",)),
    "sidecar.stopped": LogEvent("info", "All rules have finished; nothing is in flight."),
    "sidecar.ended": LogEvent("error", "The sidecar stops because of an error.", ("reason",)),
    "sidecar.refused": LogEvent("error", "The sidecar does not start.", ("code", "reason")),
    "http.failed": LogEvent("error", "An internal error failed an HTTP request.", ("path", "reason")),
    "http.watch_failed": LogEvent("error", "An internal error failed the watch for wedged rules.", ("reason",)),
    # -- reading the configuration again
    "reload.begins": LogEvent("info", "The file is read again.", ("asked_by", "config")),
    "reload.applied": LogEvent("info", "The new configuration is in force.", ("asked_by", "rules")),
    "reload.unchanged": LogEvent("info", "The configuration is unchanged.", ("asked_by",)),
    "reload.refused": LogEvent(
        "error",
        "The new configuration is refused; the previous one stays in force.",
        ("asked_by", "reason"),
    ),
    "reload.failed": LogEvent("error", "An internal error prevented the reload.", ("reason",)),
    "rule.copied_again": LogEvent(
        "warning",
        "The selection of a source changed; the records in the target no longer match, so it is copied again.",
    ),
    # -- connections
    "connection.lost": LogEvent(
        "warning", "A connection was lost; the sidecar reconnects until it succeeds.", ("server", "reason")
    ),
    "connection.back": LogEvent("info", "A connection is restored, with its subscriptions.", ("server", "version")),
    "connection.unreachable": LogEvent(
        "warning",
        "An attempt to reconnect to a server failed; once a minute for each server, and whenever the cause changes.",
        ("server", "reason"),
    ),
    "connection.untested_server": LogEvent(
        "warning",
        "This release was not compared with the server's version. Once for each connection and version.",
        ("server",),
    ),
    "connection.not_up": LogEvent(
        "warning", "No server takes a connection yet; the sidecar tries until one does.", ("reason",)
    ),
    "connection.closed": LogEvent(
        "error", "The server closed a connection permanently; the sidecar opens another one.", ("reason",)
    ),
    "connection.refused": LogEvent(
        "error", "The server refused a publication, request or subscription of the sidecar.", ("server_says",)
    ),
    "connection.rejected": LogEvent(
        "error",
        "A server refused a reconnect: credentials or TLS. The sidecar keeps trying, less often.",
        ("server", "reason"),
    ),
    "connection.error": LogEvent("warning", "An error occurred on a connection.", ("error",)),
    "connection.slow_consumer": LogEvent(
        "warning",
        "The server ended a connection as a slow consumer's, or twice soon after it was established without a reason:"
        " consumers send less ahead.",
        ("messages",),
    ),
    # -- a rule's life
    "rule.removal_near": LogEvent(
        "warning",
        "A source's limits come close to the position: at this pace they remove messages that the rule has not taken.",
        ("position", "first_sequence", "seconds"),
    ),
    "rule.ready": LogEvent(
        "info",
        "A rule is running.",
        (
            "src",
            "dest",
            "after_sequence",
            "position",
            "delivery",
            "dialect",
            "known_subjects",
            "sources",
            "attach_message",
            "stored_by",
            "queue",
            "streams",
            "on_stall",
            "again",
        ),
    ),
    "rule.waiting": LogEvent(
        "warning", "A stream that the rule needs does not exist, or does not accept its messages.", ("reason",)
    ),
    "rule.start_delayed": LogEvent(
        "warning", "A server does not answer; the start is retried.", ("reason", "again_in")
    ),
    "rule.failed": LogEvent("error", "A rule failed; it is started again later, or ends the sidecar.", ("reason",)),
    "rule.stopped": LogEvent("info", "A rule has stopped; its counters."),
    "rule.ended_at_once": LogEvent(
        "warning",
        "A rule ended without finishing; the next leader, or the next start, handles the messages in flight.",
    ),
    "rule.start_not_kept": LogEvent(
        "warning",
        "A server does not answer: `start: new` begins where the replica that leads first begins.",
        ("reason",),
    ),
    "rule.lead_lost": LogEvent("warning", "The lease may have expired; another replica may run the rule."),
    "rule.abandoned": LogEvent("error", "A rule did not drain in time and was stopped.", ("lost",)),
    "rule.abandon_incomplete": LogEvent(
        "error", "A rule was stopped, and its consumer could not be updated.", ("reason",)
    ),
    "rule.drain_incomplete": LogEvent("error", "A rule could not finish the messages in flight.", ("reason",)),
    "rule.drain_failed": LogEvent("error", "The drain of a rule failed.", ("reason",)),
    "rule.drain_timeout": LogEvent("error", "A rule did not drain within its time limit.", ("seconds",)),
    # -- replicas
    "leadership.ready": LogEvent("info", "The lease bucket is readable and writable.", ("replica", "ttl")),
    "leadership.bucket_created": LogEvent("info", "The lease bucket was created.", ("bucket",)),
    "leadership.few_servers": LogEvent(
        "info", "The servers of the cluster that have met are too few for the bucket.", ("bucket",)
    ),
    "leadership.one_server": LogEvent(
        "warning", "The bucket was created with one replica, in a cluster.", ("bucket", "reason")
    ),
    "leadership.bucket_deleted": LogEvent("warning", "The lease bucket was deleted; it is recreated.", ("bucket",)),
    "leadership.bucket_missing": LogEvent("warning", "The lease bucket cannot be recreated.", ("reason",)),
    "leadership.no_hints": LogEvent(
        "warning", "Changes of leases are polled: the user may not subscribe to them.", ("reason",)
    ),
    "leadership.not_open": LogEvent("warning", "The leases cannot be used yet; no rule runs.", ("reason",)),
    "leadership.no_answer": LogEvent("warning", "The lease bucket does not answer.", ("reason",)),
    "leadership.refused": LogEvent("warning", "The bucket refuses a lease.", ("reason",)),
    "leadership.leaves_server": LogEvent(
        "warning",
        "This server does not answer about the leases, and may have lost its cluster: the replica tries another one.",
        ("server",),
    ),
    "leadership.leads": LogEvent("info", "This replica leads the rule from now on.", ("term",)),
    "leadership.lost": LogEvent("warning", "This replica's term is over.", ("term",)),
    "leadership.hands_over": LogEvent(
        "info", "With `share`, another replica leads fewer rules: this one is drained and released.", ("term",)
    ),
    "leadership.released": LogEvent("info", "The lease was released.", ("term", "stored")),
    "leadership.failed": LogEvent("error", "An internal error ended the task of a lease.", ("reason",)),
    # -- what rules meet
    "rule.not_ready": LogEvent(
        "warning", "The rule has not been ready for ten seconds.", ("waiting_for", "for_seconds")
    ),
    "rule.stream_not_seen": LogEvent("warning", "The stream's state could not be requested.", ("reason",)),
    "rule.reserved_subject": LogEvent(
        "warning", "A message would have become a command to the server; it was not published.", ("subject", "reason")
    ),
    # -- reading a stream
    "reader.consumer_away": LogEvent(
        "warning",
        "The server of the rule's ephemeral consumer is or was down; the consumer is recreated.",
        ("consumer", "reason"),
    ),
    "reader.waiting": LogEvent(
        "warning", "The server does not answer a request for a consumer or a range.", ("reason",)
    ),
    "reader.recovered": LogEvent(
        "info", "Messages that were missing between two deliveries were read again.", ("consumer", "messages", "upto")
    ),
    "reader.unbound": LogEvent(
        "warning",
        "The server considers the consumer's subscription inactive; the rule subscribes again.",
        ("consumer",),
    ),
    "reader.foreign_publisher": LogEvent(
        "warning",
        "Another client publishes to the subject to which the rule's consumer delivers; that is ignored.",
        ("reason",),
    ),
    "reader.consumer_recreated": LogEvent(
        "warning", "The rule's consumer was deleted, and was recreated.", ("consumer", "after")
    ),
    "reader.consumer_edited": LogEvent(
        "warning",
        "Another client changed the rule's consumer, or recreated it otherwise. It may have left out messages after"
        " `after`, up to `upto`: `left_out` says how many (copies that acknowledge do not count them). `at_least_once`"
        " reads them again; if not, they count as lost. With `headers_only`, their payloads are missing.",
        ("consumer", "field", "found", "expected", "after", "upto", "left_out"),
    ),
    "reader.creation_time_changed": LogEvent(
        "info",
        "The server reports another creation time, as servers before 2.14 do after restarts; the stream is the same,"
        " and reading continues.",
        ("created", "before"),
    ),
    "reader.stream_recreated": LogEvent("warning", "The stream was recreated under the same name.", ("created",)),
    "reader.streams_missed": LogEvent(
        "warning",
        "The stream was recreated and deleted again before the rule could read it: what it held then is lost.",
        ("streams",),
    ),
    "reader.stream_shorter": LogEvent(
        "warning",
        "The server lost the end of the stream, which may hold other messages under the same sequences; reading"
        " continues after what is left. With `lost`, `at_most_once` had already sent later messages: it does not send"
        " that many new ones.",
        ("position", "last_sequence", "after", "lost"),
    ),
    "consumer.taken_over": LogEvent(
        "warning",
        "The durable consumer was recreated, because a subscription matches its inbox: of a process that lost the lead,"
        " or one such as `>`.",
        ("consumer", "after"),
    ),
    "consumer.reconfigured": LogEvent(
        "warning",
        "At its start, the rule found a consumer that selects other messages, or delivers them in another way: the rule"
        " was changed, or another client changed the consumer. It is recreated at its position. What another client's"
        " filter left out before that is not read again.",
        ("consumer", "fields", "after"),
    ),
    "consumer.leaderless": LogEvent(
        "warning",
        "The durable consumer had no leader for 30 s, though its stream has one: it is recreated.",
        ("consumer", "after"),
    ),
    "consumer.stream_shorter": LogEvent(
        "warning", "The position is after the stream's end: the server lost messages.", ("position", "last_sequence")
    ),
    # -- loops
    "loops.not_seen": LogEvent("warning", "Some streams could not be searched for loops.", ("reason",)),
    "loops.native": LogEvent("warning", "The servers' native configuration has a loop without any rule.", ("reason",)),
    # -- telemetry
    "telemetry.exports": LogEvent("info", "Metrics or traces are exported by OTLP.", ("metrics", "traces")),
    "telemetry.not_exported": LogEvent("warning", "OTLP is configured, but cannot be started.", ("reason",)),
    "telemetry.no_traces": LogEvent("warning", "Traces are configured without an exporter.", ("trace",)),
    "telemetry.export_failed": LogEvent("warning", "An OTLP export failed.", ("signal",)),
    "telemetry.last_export_failed": LogEvent("warning", "The last OTLP export before the stop failed.", ("seconds",)),
}
"""Of the sidecar, and of rules of several kinds."""

EVENTS: Final[dict[str, LogEvent]] = _SHARED | {
    name: event
    for package in dict.fromkeys(KINDS.values())
    for name, event in import_module(f"nats_bridge.kinds.{package}.log_events").EVENTS.items()
}
"""By name."""


def page() -> str:
    """The page with the table of today's events between its two marks."""
    before, _, rest = _PAGE.read_text("utf-8").partition(_BEGIN)
    _, _, after = rest.partition(_END)
    rows = [(f"`{name}`{'' if name in ALWAYS else ' ¹'}", event.level, event.meaning) for name, event in EVENTS.items()]
    return f"{before}{_BEGIN}{table(('event', 'level', 'meaning'), rows)}{_END}{after}"
