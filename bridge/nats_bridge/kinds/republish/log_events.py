"""The events that only rules of kind republish log."""

from __future__ import annotations

from typing import Final

from nats_bridge.observability.log_event import LogEvent

EVENTS: Final = {
    "rule.begins_new": LogEvent(
        "warning",
        "The rule found no durable consumer in a stream that is not new, and no position in its lease. It begins with"
        " the next message. At its first start, that is right. If it has run before, its consumer was deleted, and"
        " messages since then are skipped.",
        ("after",),
    ),
    "rule.position_restored": LogEvent(
        "warning",
        "The rule's durable consumer was deleted while no replica ran, or the stream may have lost messages before its"
        " position. The rule resumes at the position in its lease. After a crash, `at_least_once` repeats the messages"
        " since the last renewal.",
        ("consumer", "position", "after"),
    ),
    "rule.position_unproven": LogEvent(
        "warning",
        "The sidecar was killed, and the server has restarted since the last acknowledgement. If the server lost the"
        " end of the stream, new messages up to this position are not republished. With `leadership`, the rule finds"
        " them.",
        ("consumer", "after"),
    ),
    "rule.last_sequence_inexact": LogEvent(
        "warning", "The stream's limits cannot be followed from outside: Nats-Last-Sequence can differ.", ("because",)
    ),
    "rule.limits_changed": LogEvent("warning", "The stream's limits were changed.", ("uncertain",)),
    "rule.removals_not_received": LogEvent(
        "warning", "The user may not receive advisories of deletes and purges.", ("reason",)
    ),
    "rule.message_too_large": LogEvent(
        "warning", "With its new headers, a message exceeds the server's max_payload.", ("max_payload", "so_far")
    ),
    "rule.position_can_jump": LogEvent(
        "warning",
        "A crash may lose messages if the stream removed a later one: kd/messages/removed-in-hand.",
        ("max_msgs_per_subject",),
    ),
    "rule.side_effects": LogEvent("warning", "Reading the stream changes its content, which was allowed."),
    "rule.predecessor_not_seen": LogEvent(
        "warning", "The predecessor of a message could not be requested; the message waits.", ("reason",)
    ),
}
"""By name."""
