"""Checks of a configuration beyond the shape of its parts: references, combinations, transforms.

One module per part of the configuration, and one per kind of rule; each gives `Problem`s. Where a server decides about
the same thing in a stream's configuration, the engine is asked, and the message has the server's words and number.
"""

from __future__ import annotations

from nats_bridge.bridge.settings.checks.connections import (
    connection_problems,
    leadership_problems,
    reference_problems,
    websocket_problems,
)
from nats_bridge.bridge.settings.checks.rule_tests import test_problems
from nats_bridge.bridge.settings.checks.rules import rule_problems
from nats_bridge.bridge.settings.checks.transforming import dialect_problem

__all__ = [
    "connection_problems",
    "dialect_problem",
    "leadership_problems",
    "reference_problems",
    "rule_problems",
    "test_problems",
    "websocket_problems",
]
