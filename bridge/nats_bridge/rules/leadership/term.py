"""The lead of a rule, for a term, which a supervisor needs to run it. A sidecar without replicas always leads."""

import asyncio
from collections.abc import Callable

from nats_bridge.client.write_fence import ALWAYS_OPEN, WriteFence
from nats_bridge.rules.leadership.lease import KeptPosition
from nats_bridge.settings import Rule


class Term:
    """A time for which this sidecar leads one rule. Without replicas it never ends.

    Args:
        fence: checked before anything is written for the rule.

    Attributes:
        lost: set when the term was lost, not ended by `end`: the run stops at once and sends nothing to any server.
        surplus: set when another replica should lead the rule: the run drains, and the term ends.
    """

    def __init__(self, fence: WriteFence = ALWAYS_OPEN) -> None:
        self.fence = fence
        self.lost = asyncio.Event()
        self.surplus = asyncio.Event()

    @property
    def kept(self) -> KeptPosition | None:
        """The rule's position in the lease; None without one or without a lease."""
        return None

    def keep(self, position: Callable[[], KeptPosition | None]) -> None:
        """Let the lease carry the rule's position from now on.

        Args:
            position: returns the position, or None if unknown; called before every write of the lease.
        """

    async def end(self, *, finished: bool = True) -> None:
        """Release it, after the run: another replica may lead. Without effect if it is lost.

        Args:
            finished: the server has everything that was written. If not, another replica leads only after a while,
                and bytes that have not left the process by now are discarded.
        """


class Leadership:
    """Decides who leads: without replicas, this sidecar.

    Attributes:
        shared: whether there may be other replicas; otherwise supervisors never become standbys.
    """

    shared = False

    async def lead(self, rule: Rule) -> Term:
        """Wait until this sidecar leads the rule. If cancelled, it does not lead.

        Rules of a kind whose replicas share the messages anyway (queue groups) may be led by all at once.
        """
        return Term()

    def is_led(self, rule: str) -> bool:
        """Return whether this or another replica is known to lead the rule at this moment."""
        return True

    async def has_position(self, rule: str) -> bool:
        """Return whether the rule's lease carries a position.

        Raises:
            ApiError: the bucket does not answer.
        """
        return False

    async def leave(self) -> None:
        """Announce to other replicas that this sidecar is about to stop, before its supervisors stop."""

    async def close(self) -> None:
        """Release the remaining leases, when no supervisor runs any longer."""
