"""The events that only rules of kind sources, mirror and kv_sources log."""

from __future__ import annotations

from typing import Final

from nats_bridge.observability.log_event import LogEvent

EVENTS: Final = {
    "rule.durable_left": LogEvent(
        "warning", "The consumer of an entry that was removed stays on the server.", ("stream", "consumer")
    ),
    "rule.selects_nothing": LogEvent("warning", "The source has no subject that the rule selects."),
    "copying.begins": LogEvent("info", "An entry starts copying.", ("after_sequence", "already_there")),
    "copying.begins_at_time": LogEvent(
        "warning", "No copy in the target names the position; copying starts at a time.", ("time",)
    ),
    "copying.searching_position": LogEvent(
        "info", "The target is searched backwards for the last copy.", ("searched", "left")
    ),
    "copying.interrupted": LogEvent(
        "warning", "It is unknown what the target stored; the next round finds out.", ("reason",)
    ),
    "copying.incomplete": LogEvent(
        "warning", "An interruption left copies out; the rule stores them now.", ("missing", "of_lost_messages")
    ),
    "copying.assumed_deleted": LogEvent(
        "warning", "Copies are missing in the target and are treated as deleted.", ("messages",)
    ),
    "copying.source_shorter": LogEvent(
        "warning", "The server lost the end of the source.", ("position", "last_sequence")
    ),
    "copying.target_shorter": LogEvent(
        "warning",
        "The target does not hold copies that it had confirmed: its server lost the end of its store.",
        ("position",),
    ),
    "copying.source_recreated": LogEvent("warning", "The source was recreated under the same name.", ("created",)),
    "copying.headers_will_be_lost": LogEvent(
        "warning",
        "A rule begins to copy messages that may have a TTL, a counter or a schedule, which the target does "
        "not accept from clients: `meaning` explains the effect on copies.",
    ),
    "copying.renamed_headers": LogEvent(
        "warning", "The target does not store a counter's or schedule's headers; they have other names."
    ),
    "copying.waits": LogEvent("warning", "The target accepts nothing at the moment; copying waits.", ("server_says",)),
    "copying.continues": LogEvent("info", "The target accepts messages again."),
    "copying.consumer_renamed": LogEvent(
        "info",
        "An entry was edited, and has another consumer: the former one is deleted.",
        ("consumer", "after"),
    ),
    "copying.consumer_left": LogEvent(
        "warning", "The user may not delete a consumer that an entry had before it was edited.", ("consumer", "reason")
    ),
    "copying.consumers_not_listed": LogEvent(
        "warning", "The user may not list consumers: those of entries that were edited are not found.", ("reason",)
    ),
    "copying.rejected": LogEvent(
        "warning",
        "The target rejected a message permanently; on_rejected decides.",
        ("sequence", "reason", "published_to"),
    ),
}
"""By name."""
