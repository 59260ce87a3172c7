"""Whether a rule may write at this moment: asked before every batch that is written, by whatever kind of rule.

A sidecar that runs alone always may. Among replicas, only the one that holds the rule's lease may, and only as long as
nobody else can hold it (see `bridge.rules.leadership`).
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["ALWAYS_OPEN", "Gate"]


class Gate(Protocol):
    """What writers of a rule ask."""

    @property
    def is_open(self) -> bool:
        """Whether writing is allowed now; cheap, and exact at the moment of asking."""

    @property
    def holds_back(self) -> bool:
        """Whether what was written while it was open, and has not left the process, must not leave any more."""

    @property
    def unsent_for(self) -> float | None:
        """Seconds for which the operating system may try to send what was written; None for as long as it likes."""

    async def opened(self) -> None:
        """Wait until writing is allowed; where it never will be, until the rule is stopped."""


class _AlwaysOpen:
    """The gate of a sidecar without replicas."""

    is_open = True
    holds_back = False
    unsent_for = None

    async def opened(self) -> None:
        """Return at once."""


ALWAYS_OPEN: Gate = _AlwaysOpen()
"""The gate where nobody else could write."""
