"""Rejects rules that would create a message loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Set
from typing import Self

import structlog

from nats_bridge.bridge.client.connection import Connection
from nats_bridge.bridge.errors import RuleRefusedError
from nats_bridge.bridge.rules.loops.account_graph import AccountGraph
from nats_bridge.bridge.settings import Settings

__all__ = ["LoopCheck"]

_log = structlog.get_logger("bridge.sidecar")


class LoopCheck:
    """Checks the accounts and all rules of a configuration together.

    Args:
        settings: the configuration.
        connections: its open connections by name.
        earlier: the check of another configuration.
    """

    def __init__(
        self, settings: Settings, connections: Mapping[str, Connection], earlier: AccountGraph | None = None
    ) -> None:
        self._accounts = AccountGraph(settings, connections, earlier)

    async def refuse(self, rules: Set[str]) -> None:
        """Check now.

        Raises:
            RuleRefusedError: one of the named rules takes part in a loop.
        """
        outlook = await self._accounts.look()
        for reason in outlook.unseen:
            _log.warning("loops.not_seen", reason=reason)
        for loop in outlook.native:
            _log.warning("loops.native", reason=str(loop))
        for loop in outlook.loops:
            if loop.rule in rules:
                raise RuleRefusedError(str(loop))

    def following(self, settings: Settings, connections: Mapping[str, Connection]) -> Self:
        """The same for another configuration; what is known of connections that are used on still holds."""
        return type(self)(settings, connections, self._accounts)

    def on_change(self, listener: Callable[[], Awaitable[None]]) -> None:
        """Await `listener` when connections turn out to reach one account after a check: repeat it then."""
        self._accounts.shared.on_late = listener

    async def close(self) -> None:
        """Stop finding that out."""
        await self._accounts.shared.close()
