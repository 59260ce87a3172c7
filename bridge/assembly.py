"""A configuration together with what it needs to run: its open connections, and what sees loops in their accounts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.connection import Link
from bridge.loop_check import LoopCheck
from bridge.rule_context import RuleContext
from bridge.rule_kinds import make_run
from bridge.rule_run import RuleRun
from bridge.settings import Rule, Settings

if TYPE_CHECKING:
    from bridge.telemetry.tracing import RuleTracing

__all__ = ["Assembly"]


@dataclass(frozen=True, slots=True)
class Assembly:
    """What the rules of one configuration run on.

    Attributes:
        settings: the configuration.
        links: its open connections by name.
        loops: refuses rules whose messages would come round.
        tracing_of: what makes a rule's spans, None for none.
    """

    settings: Settings
    links: Mapping[str, Link]
    loops: LoopCheck
    tracing_of: Callable[[Rule], RuleTracing | None] = lambda _: None

    def make_run(self, rule: Rule, context: RuleContext) -> RuleRun:
        """What runs one of the configuration's rules; nothing happens before its `check`."""
        return make_run(rule, self.settings, self.links, context)
