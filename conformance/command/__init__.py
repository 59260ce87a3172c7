"""``nats-bridge conform``: running, judging and reporting, for people."""

from nats_bridge.conformance.command.group import conform

__all__ = ["conform"]
