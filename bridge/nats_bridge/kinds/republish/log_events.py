"""The events that only rules of kind republish log."""

from typing import Final

from nats_bridge.observability.log_event import LogEvent

EVENTS: Final = {
    "rule.begins_new": LogEvent(
        "warning",
        "The rule found no position and begins with the next message. If it has run before, it skips messages.",
        ("after",),
    ),
    "rule.position_restored": LogEvent(
        "warning",
        "The consumer's position is missing or doubtful, so the rule resumes at the last message with a known time.",
        ("consumer", "position", "after"),
    ),
    "rule.position_unproven": LogEvent(
        "warning",
        "The rule cannot verify its position. If the stream lost its end, new messages up to the position"
        " are not republished.",
        ("consumer", "after"),
    ),
    "rule.last_sequence_inexact": LogEvent(
        "warning", "The stream's limits can make `Nats-Last-Sequence` inexact.", ("because",)
    ),
    "rule.limits_changed": LogEvent("warning", "The stream's limits were changed.", ("uncertain",)),
    "rule.removals_not_received": LogEvent(
        "warning",
        "The user may not receive advisories of deletes and purges, so `Nats-Last-Sequence` can be inexact.",
        ("reason",),
    ),
    "rule.message_too_large": LogEvent(
        "warning", "A message with its new headers exceeds the server's `max_payload`.", ("max_payload", "so_far")
    ),
    "rule.position_can_jump": LogEvent(
        "warning",
        "If the stream removes a message in flight, a crash may lose earlier messages (`kd/messages/removed-in-hand`).",
        ("max_msgs_per_subject",),
    ),
    "rule.side_effects": LogEvent(
        "warning", "The rule changes the content of the stream by reading it, as you allowed."
    ),
    "rule.predecessor_not_seen": LogEvent(
        "warning",
        "A message is waiting, because the request for the previous message on its subject failed.",
        ("reason",),
    ),
}
"""By name."""
