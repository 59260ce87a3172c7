"""``nats-bridge conform``: running, judging and reporting, for people."""

from conformance.command.group import conform

__all__ = ["conform"]
