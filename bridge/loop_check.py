"""Refusing rules whose messages would come round for ever, whoever looks at the accounts for that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Set
from typing import Protocol, Self

import structlog

from bridge.account_graph import AccountGraph
from bridge.connection import Link
from bridge.errors import RuleRefusedError
from bridge.settings import Settings

__all__ = ["AccountLoops", "LoopCheck"]

_log = structlog.get_logger("bridge.sidecar")


class LoopCheck(Protocol):
    """Looks at the accounts and at all rules of a configuration together."""

    async def refuse(self, rules: Set[str]) -> None:
        """Look now.

        Raises:
            RuleRefusedError: one of the named rules takes part in a loop.
        """

    def following(self, settings: Settings, links: Mapping[str, Link]) -> LoopCheck:
        """The same for another configuration; what is known of connections that are used on still holds."""

    def on_change(self, listener: Callable[[], Awaitable[None]]) -> None:
        """Await `listener` when connections turn out to reach the same account after a look: look again then."""

    async def close(self) -> None:
        """Stop finding that out."""


class AccountLoops:
    """Looks through the connections of the rules themselves.

    Args:
        settings: the configuration.
        links: its open connections by name.
        earlier: the same for another configuration.
    """

    def __init__(self, settings: Settings, links: Mapping[str, Link], earlier: AccountGraph | None = None) -> None:
        self._accounts = AccountGraph(settings, links, earlier)

    async def refuse(self, rules: Set[str]) -> None:
        """See `LoopCheck`."""
        outlook = await self._accounts.look()
        for reason in outlook.unseen:
            _log.warning("loops.not_seen", reason=reason)
        for loop in outlook.native:
            _log.warning("loops.native", reason=str(loop))
        for loop in outlook.loops:
            if loop.rule in rules:
                raise RuleRefusedError(str(loop))

    def following(self, settings: Settings, links: Mapping[str, Link]) -> Self:
        """See `LoopCheck`."""
        return type(self)(settings, links, self._accounts)

    def on_change(self, listener: Callable[[], Awaitable[None]]) -> None:
        """See `LoopCheck`."""
        self._accounts.shared.on_late = listener

    async def close(self) -> None:
        """See `LoopCheck`."""
        await self._accounts.shared.close()
