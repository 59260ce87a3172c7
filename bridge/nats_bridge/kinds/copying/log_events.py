"""The events that only rules of kind sources, mirror and kv_sources log."""

from __future__ import annotations

from typing import Final

from nats_bridge.observability.log_event import LogEvent

EVENTS: Final = {
    "rule.durable_left": LogEvent(
        "warning", "An entry was removed, but its consumer stays on the server.", ("stream", "consumer")
    ),
    "rule.selects_nothing": LogEvent("warning", "The rule selects none of the source's subjects."),
    "copying.begins": LogEvent("info", "An entry starts copying.", ("after_sequence", "already_there")),
    "copying.removed_uncopied": LogEvent(
        "warning",
        "The source removed the messages between `after_sequence` and `first_sequence` before they were copied.",
        ("after_sequence", "first_sequence"),
    ),
    "copying.begins_at_time": LogEvent(
        "warning", "No copy in the target shows the position, so copying begins at `time`.", ("time",)
    ),
    "copying.searching_position": LogEvent(
        "info", "The rule searches the target backwards for the last copy.", ("searched", "left")
    ),
    "copying.interrupted": LogEvent(
        "warning",
        "After an interruption, the rule does not know which copies the target stored. The next round finds out.",
        ("reason",),
    ),
    "copying.incomplete": LogEvent(
        "warning", "An interruption left out copies, which the rule is now storing.", ("missing", "of_lost_messages")
    ),
    "copying.assumed_deleted": LogEvent(
        "warning",
        "The rule assumes that missing copies were deleted on purpose.",
        ("messages",),
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
        "The target may not accept TTLs, counters or schedules.",
    ),
    "copying.renamed_headers": LogEvent(
        "warning", "The rule renames headers of counters or schedules, so that the target stores them."
    ),
    "copying.waits": LogEvent("warning", "The target accepts no messages, so the entry waits.", ("server_says",)),
    "copying.continues": LogEvent("info", "The target accepts messages again."),
    "copying.consumer_renamed": LogEvent(
        "info",
        "An entry was edited, so the rule deletes the entry's former consumer.",
        ("consumer", "after"),
    ),
    "copying.consumer_left": LogEvent(
        "warning",
        "An entry was edited, but the user may not delete the entry's former consumer.",
        ("consumer", "reason"),
    ),
    "copying.consumers_not_listed": LogEvent(
        "warning", "The user may not list consumers, so the rule cannot find consumers of edited entries.", ("reason",)
    ),
    "copying.rejected": LogEvent(
        "warning",
        "The target rejected a message permanently. `on_rejected` decides whether the rule stops.",
        ("sequence", "reason", "published_to"),
    ),
}
"""By name."""
