"""``nats-bridge conform``: running, judging and reporting, for people."""

from nats_conformance.command.group import conform

__all__ = ["conform"]
