"""The events that only rules of kind advisories log."""

from typing import Final

from nats_bridge.observability.log_event import LogEvent

EVENTS: Final = {
    "rule.advisories_dropped": LogEvent(
        "warning", "Too many advisories were waiting, so the rule dropped the newest.", ("so_far",)
    ),
    "rule.own_advisory": LogEvent(
        "warning", "The rule skipped an advisory about the stream that stores the rule's messages.", ("so_far",)
    ),
    "rule.message_not_readable": LogEvent("warning", "The message of an advisory cannot be read.", ("reason",)),
    "rule.message_not_seen": LogEvent("warning", "The message of an advisory cannot be read yet.", ("reason",)),
    "rule.stream_silent": LogEvent(
        "warning", "A stream did not confirm messages, so the rule publishes them again.", ("messages",)
    ),
    "rule.refused_by_stream": LogEvent("error", "A stream rejected a message permanently.", ("reason",)),
    "rule.target_streams_unknown": LogEvent(
        "warning",
        "The streams that store the rule's messages are unknown, so the rule does not wait for PubAcks.",
        ("reason",),
    ),
}
"""By name."""
