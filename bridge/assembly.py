"""A configuration together with what it needs to run: its open connections, and a view of their accounts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from bridge.account_graph import AccountGraph
from bridge.connection import Link
from bridge.errors import RuleRefusedError
from bridge.rule_context import RuleContext
from bridge.rule_kinds import make_run
from bridge.rule_run import RuleRun
from bridge.settings import Rule, Settings

if TYPE_CHECKING:
    from bridge.telemetry.tracing import RuleTracing

__all__ = ["Assembly"]

_log = structlog.get_logger("bridge.sidecar")


@dataclass(frozen=True, slots=True)
class Assembly:
    """What the rules of one configuration run on.

    Attributes:
        settings: the configuration.
        links: its open connections by name.
        accounts: what is in the accounts that they reach.
        tracing_of: what makes a rule's spans, None for none.
    """

    settings: Settings
    links: Mapping[str, Link]
    accounts: AccountGraph
    tracing_of: Callable[[Rule], RuleTracing | None] = lambda _: None

    def make_run(self, rule: Rule, context: RuleContext) -> RuleRun:
        """What runs one of the configuration's rules; nothing happens before its `check`."""
        return make_run(rule, self.settings, self.links, context)

    async def refuse_loops(self, rules: Set[str]) -> None:
        """Look at the accounts and all rules together.

        Raises:
            RuleRefusedError: one of the named rules takes part in a loop.
        """
        outlook = await self.accounts.look()
        for reason in outlook.unseen:
            _log.warning("loops.not_seen", reason=reason)
        for loop in outlook.native:
            _log.warning("loops.native", reason=str(loop))
        for loop in outlook.loops:
            if loop.rule in rules:
                raise RuleRefusedError(str(loop))
