"""The events that only rules of kind republish log."""

from __future__ import annotations

from typing import Final

from nats_bridge.observability.log_event import LogEvent

EVENTS: Final = {
    "rule.begins_new": LogEvent(
        "warning",
        "The rule found no position, and begins with the next message. If it ran before, messages are skipped.",
        ("after",),
    ),
    "rule.position_restored": LogEvent(
        "warning",
        "The rule resumes at the position in its lease, because the consumer's is missing or doubtful.",
        ("consumer", "position", "after"),
    ),
    "rule.position_unproven": LogEvent(
        "warning",
        "If the stream lost its end, new messages up to this position are not republished.",
        ("consumer", "after"),
    ),
    "rule.last_sequence_inexact": LogEvent(
        "warning", "The stream's limits can make `Nats-Last-Sequence` inexact.", ("because",)
    ),
    "rule.limits_changed": LogEvent("warning", "The stream's limits were changed.", ("uncertain",)),
    "rule.removals_not_received": LogEvent(
        "warning", "The user may not receive advisories of deletes and purges.", ("reason",)
    ),
    "rule.message_too_large": LogEvent(
        "warning", "With its new headers, a message exceeds the server's `max_payload`.", ("max_payload", "so_far")
    ),
    "rule.position_can_jump": LogEvent(
        "warning",
        "A crash may lose messages if the stream removed a later one (`kd/messages/removed-in-hand`).",
        ("max_msgs_per_subject",),
    ),
    "rule.side_effects": LogEvent("warning", "Reading the stream changes its content, which you allowed."),
    "rule.predecessor_not_seen": LogEvent(
        "warning", "A message is waiting, because its predecessor could not be requested.", ("reason",)
    ),
}
"""By name."""
