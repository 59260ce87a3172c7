"""Decides whether a rule may write. Rules of every kind ask it before each batch.

A sidecar without replicas may always write. Among replicas, only the holder of the rule's lease may write, and only
while no other replica can hold it (see `nats_bridge.rules.leadership`).
"""

from typing import Protocol


class WriteFence(Protocol):
    """Decides whether a rule may write."""

    @property
    def is_open(self) -> bool:
        """Whether writing is allowed now. This is cheap, and exact at the moment of the call."""

    @property
    def holds_back(self) -> bool:
        """Whether unsent bytes that were written while it was open must be discarded."""

    @property
    def unsent_for(self) -> float | None:
        """Seconds for which the kernel may try to send written bytes; None without a limit."""

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
"""The fence of a sidecar without replicas."""
