"""The events that only rules of kind watch log."""

from typing import Final

from nats_bridge.observability.log_event import LogEvent

EVENTS: Final = {
    "watch.stalled": LogEvent(
        "warning",
        "A native copy is making no progress, or is stalled for a different reason than before.",
        ("code", "reason", "remedy", "missing", "seconds"),
    ),
    "watch.recovered": LogEvent("info", "A stalled native copy is making progress again.", ("missing", "position")),
    "watch.stepped_down": LogEvent("warning", "The leader of a stalled stream was asked to step down.", ("leader",)),
    "watch.no_step_down": LogEvent(
        "warning", "The leader of a stalled stream refused to step down, or was not asked.", ("reason",)
    ),
    "watch.not_seen": LogEvent("warning", "A server is not answering the watch rule.", ("reason",)),
    "watch.nothing_to_watch": LogEvent(
        "warning", "A named stream does not exist, or has no mirror and no sources.", ("reason",)
    ),
}
"""By name."""
