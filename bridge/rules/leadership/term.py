"""What a seat asks before its rule works: to lead it, for a term. A sidecar without replicas always leads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from nats_bridge.bridge.client.write_fence import ALWAYS_OPEN, Gate

if TYPE_CHECKING:
    from nats_bridge.bridge.settings import Rule

__all__ = ["ALONE", "Leadership", "Term"]


class Term(Protocol):
    """A time for which this sidecar leads one rule.

    Attributes:
        gate: asked before anything is written for the rule.
        lost: set when the term is over, and not by us: the run stops at once and sends nothing to any server.
        surplus: set when another replica should lead the rule: the run drains, and the term ends.
    """

    gate: Gate
    lost: asyncio.Event
    surplus: asyncio.Event

    async def end(self, *, finished: bool = True) -> None:
        """Give it back, after the run: another replica may lead. Nothing happens if it is lost.

        Args:
            finished: the server has all that was written. If not, another replica leads only after a while, and what
                has not left the process by now never does.
        """


class Leadership(Protocol):
    """Decides who leads.

    Attributes:
        shared: whether there may be other replicas at all; seats go on standby only if so.
    """

    shared: bool

    async def lead(self, rule: Rule) -> Term:
        """Wait until this sidecar leads the rule; may be cancelled at any moment, and then leads nothing.

        Rules of a kind whose replicas share the messages anyway (queue groups) may be led by all at once.
        """

    async def close(self) -> None:
        """End what is left, when no seat works any more."""


class _Always:
    """The term of a sidecar that is alone: it never ends."""

    gate: Gate = ALWAYS_OPEN

    def __init__(self) -> None:
        self.lost = asyncio.Event()
        self.surplus = asyncio.Event()

    async def end(self, *, finished: bool = True) -> None:
        """Nobody is there to hear it."""


class _Alone:
    """The leadership of a sidecar without replicas."""

    shared = False

    async def lead(self, _: Rule) -> Term:
        """At once."""
        return _Always()

    async def close(self) -> None:
        """Nothing is open."""


ALONE: Leadership = _Alone()
"""Where there are no replicas."""
