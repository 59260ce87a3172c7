"""The command line, for people: running, judging and reporting, and questions about streams."""

from nats_conformance.command.group import conform

__all__ = ["conform"]
