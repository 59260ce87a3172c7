"""The events that only rules of kind subject_transform log."""

from __future__ import annotations

from typing import Final

from nats_bridge.observability.log_event import LogEvent

EVENTS: Final = {
    "rule.second_transform": LogEvent("warning", "The stream's own subject transform is applied second.", ("native",)),
    "rule.message_refused": LogEvent("warning", "A publisher's message was refused.", ("reason", "so_far")),
    "rule.overloaded": LogEvent("warning", "Messages are arriving faster than the server accepts them.", ("so_far",)),
}
"""By name."""
