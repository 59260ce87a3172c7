"""Checks of a configuration beyond the shape of its parts: references, combinations, transforms.

One module for each part of the configuration and one for each kind of rule; each yields `Problem`s. If a server
validates the same thing in a stream's configuration, the engine decides, and the message contains the server's words
and number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nats_bridge.settings.checks.connections import connection_problems, reference_problems
from nats_bridge.settings.checks.rule_tests import test_problems
from nats_bridge.settings.checks.rules import rule_problems
from nats_bridge.settings.checks.transforming import dialect_problem
from nats_bridge.settings.models import Settings
from nats_bridge.settings.problems import Problem

__all__ = ["rule_problems", "settings_problems"]


def settings_problems(settings: Settings, environ: Mapping[str, str]) -> Iterator[Problem]:
    """Yield the problems of a configuration whose parts are well formed.

    Args:
        environ: the variables that locate the contexts of `nats`.
    """
    if not settings.rules:
        yield Problem((), "no rules; add at least one entry under rules:")
    if not settings.connections:
        yield Problem(("connections",), "no connections; remove the key to use nats://127.0.0.1:4222")
    if reason := dialect_problem(settings.dialect):
        yield Problem(("dialect",), reason)
    yield from connection_problems(settings, environ)
    yield from reference_problems(settings)
    yield from rule_problems(enumerate(settings.rules), settings.dialect, settings.connections)
    yield from test_problems(settings.tests, settings.rules)
