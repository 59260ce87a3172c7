"""The events that only rules of kind sources, mirror and kv_sources log."""

from __future__ import annotations

from typing import Final

from nats_bridge.observability.log_event import LogEvent

EVENTS: Final = {
    "rule.durable_left": LogEvent(
        "warning", "The consumer of a removed entry stays on the server.", ("stream", "consumer")
    ),
    "rule.selects_nothing": LogEvent("warning", "The source has no subject that the rule selects."),
    "copying.begins": LogEvent("info", "An entry starts copying.", ("after_sequence", "already_there")),
    "copying.removed_uncopied": LogEvent(
        "warning",
        "The source removed the messages between the two sequences before they were copied.",
        ("after_sequence", "first_sequence"),
    ),
    "copying.begins_at_time": LogEvent(
        "warning", "No copy in the target names the position, so copying starts at a time.", ("time",)
    ),
    "copying.searching_position": LogEvent(
        "info", "The target is searched backwards for the last copy.", ("searched", "left")
    ),
    "copying.interrupted": LogEvent(
        "warning", "It is unknown which copies the target stored. The next round finds out.", ("reason",)
    ),
    "copying.incomplete": LogEvent(
        "warning", "An interruption left out copies, which the rule is now storing.", ("missing", "of_lost_messages")
    ),
    "copying.assumed_deleted": LogEvent(
        "warning", "Copies are missing in the target and are treated as deleted.", ("messages",)
    ),
    "copying.source_shorter": LogEvent(
        "warning", "The server lost the end of the source.", ("position", "last_sequence")
    ),
    "copying.target_shorter": LogEvent(
        "warning",
        "The target's server lost copies that it had confirmed.",
        ("position",),
    ),
    "copying.source_recreated": LogEvent("warning", "The source was recreated.", ("created",)),
    "copying.headers_will_be_lost": LogEvent(
        "warning",
        "The target may not accept TTLs, counters or schedules. `meaning` explains the effect.",
    ),
    "copying.renamed_headers": LogEvent(
        "warning", "Headers of counters or schedules are renamed, so that the target stores them."
    ),
    "copying.waits": LogEvent("warning", "The target is accepting nothing, so copying is waiting.", ("server_says",)),
    "copying.continues": LogEvent("info", "The target accepts messages again."),
    "copying.consumer_renamed": LogEvent(
        "info",
        "The entry was edited, so its former consumer is deleted.",
        ("consumer", "after"),
    ),
    "copying.consumer_left": LogEvent(
        "warning", "The user may not delete an edited entry's former consumer.", ("consumer", "reason")
    ),
    "copying.consumers_not_listed": LogEvent(
        "warning", "The user may not list consumers, so former ones are not found.", ("reason",)
    ),
    "copying.rejected": LogEvent(
        "warning",
        "The target rejected a message permanently. `on_rejected` decides.",
        ("sequence", "reason", "published_to"),
    ),
}
"""By name."""
