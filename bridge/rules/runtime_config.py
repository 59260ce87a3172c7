"""A configuration with what it needs to run: its open connections, and the loop check of their accounts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nats_bridge.bridge.client.connection import Connection
from nats_bridge.bridge.kinds.registry import kind_of
from nats_bridge.bridge.rules.context import RuleContext
from nats_bridge.bridge.rules.loops.account_graph import AccountGraph
from nats_bridge.bridge.rules.run import RuleRun
from nats_bridge.bridge.settings import Rule, Settings

if TYPE_CHECKING:
    from nats_bridge.bridge.observability.telemetry.tracing import RuleTracing


@dataclass(frozen=True, slots=True)
class Assembly:
    """The resources of the rules of one configuration.

    Attributes:
        settings: the configuration.
        connections: its open connections by name.
        loops: refuses rules that would loop.
        tracing_of: what makes a rule's spans, None for none.
    """

    settings: Settings
    connections: Mapping[str, Connection]
    loops: AccountGraph
    tracing_of: Callable[[Rule], RuleTracing | None] = lambda _: None

    def make_run(self, rule: Rule, context: RuleContext) -> RuleRun:
        """Return the run of one of the configuration's rules; it does nothing before its `check`."""
        return kind_of(rule).run(rule, self.settings, self.connections, context)
