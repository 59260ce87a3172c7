"""The events that only rules of kind subject_transform log."""

from typing import Final

from nats_bridge.observability.log_event import LogEvent

EVENTS: Final = {
    "rule.second_transform": LogEvent(
        "warning", "The server applies the stream's own subject transform after the rule's transform.", ("native",)
    ),
    "rule.message_refused": LogEvent("warning", "The rule refused a publisher's message.", ("reason", "so_far")),
    "rule.overloaded": LogEvent("warning", "Messages are arriving faster than the server accepts them.", ("so_far",)),
}
"""By name."""
