"""Decides whether a rule may write; every kind of rule asks before each batch.

A sidecar without replicas always may. Among replicas, only the holder of the rule's lease may, and only while no other
replica can hold it (see `nats_bridge.rules.leadership`).
"""

from __future__ import annotations

from typing import Protocol


class WriteFence(Protocol):
    """Decides whether a rule may write."""

    @property
    def is_open(self) -> bool:
        """Whether writing is allowed now; cheap, and exact at the moment of asking."""

    @property
    def holds_back(self) -> bool:
        """Whether unsent bytes that were written while it was open must be discarded."""

    @property
    def unsent_for(self) -> float | None:
        """Seconds for which the kernel may try to send what was written; None without a limit."""

    async def opened(self) -> None:
        """Wait until writing is allowed, or until the rule is stopped."""


class _AlwaysOpen:
    """The fence of a sidecar without replicas."""

    is_open = True
    holds_back = False
    unsent_for = None

    async def opened(self) -> None:
        """Return at once."""


ALWAYS_OPEN: WriteFence = _AlwaysOpen()
"""The fence where no other replica could write."""
