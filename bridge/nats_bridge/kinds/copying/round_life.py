"""The states of a round of copying, without I/O. Publisher, reader and entry move it; its end wakes what waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal, TypeAlias

from nats_bridge.states import StateTable

RoundState: TypeAlias = Literal["opening", "copying", "broken", "failed", "draining", "leaving", "cut", "closed"]
RoundEvent: TypeAlias = Literal["opened", "interrupted", "failed", "drain", "leave", "cut", "closed"]

ROUND: StateTable[RoundState, RoundEvent] = StateTable(
    """
              opened    interrupted  failed   drain     leave    cut  closed
    opening   copying   broken       failed   leaving   leaving  cut  -
    copying   -         broken       failed   draining  leaving  cut  -
    broken    broken    broken       failed   leaving   leaving  cut  closed
    failed    failed    failed       failed   failed    failed   cut  closed
    draining  -         leaving      failed   draining  leaving  cut  closed
    leaving   leaving   leaving      leaving  leaving   leaving  cut  closed
    cut       cut       cut          cut      cut       cut      cut  closed
    closed    -         closed       closed   closed    closed   closed  -
    """
)
"""A round is `opening` while it finds out what the target holds, then `copying`.

`broken`: it is unknown what the target has stored, so the next round begins. `failed`: an error ends the rule.
`draining`: nothing more is read, and what is in flight is awaited; `leaving`: it is not; `cut`: another replica may
write by now, so nothing is sent to any server. In all but the first two the round ends; in all but these and `draining`
the publisher sends nothing more.
"""

_SENDING = frozenset({"opening", "copying", "draining"})


class RoundLife:
    """The state of one round.

    Args:
        interrupted: called with the reason when it is unknown what is stored.
        failed: called with the error that ends the rule.

    Attributes:
        state: the state.
        over: whether nothing more is sent.
        closing: what closes it, once that began.
    """

    def __init__(self, interrupted: Callable[[str], None], failed: Callable[[BaseException], None]) -> None:
        self.state: RoundState = "opening"
        self.over = False
        self.closing: asyncio.Task[None] | None = None
        self._interrupted = interrupted
        self._failed = failed
        self._end = asyncio.Event()
        self._when_over: list[Callable[[], None]] = []

    def when_over(self, call: Callable[[], None]) -> None:
        """Call something as soon as nothing more is sent."""
        self._when_over.append(call)

    def happened(self, event: RoundEvent) -> None:
        """Move to the next state.

        Raises:
            IllegalTransitionError: the event must not happen now.
        """
        self.state = ROUND.after(self.state, event)
        if self.ends:
            self._end.set()
        if not self.over and self.state not in _SENDING:
            self.over = True
            for call in self._when_over:
                call()

    def interrupt(self, reason: str) -> None:
        """Interrupt the round: it is unknown what is stored. Without effect once nothing more is sent."""
        if not self.over:
            self.happened("interrupted")
            self._interrupted(reason)

    def fail(self, error: BaseException) -> None:
        """End the rule with an error."""
        self.happened("failed")
        self._failed(error)

    @property
    def ends(self) -> bool:
        """Whether the round must be closed."""
        return self.state not in ("opening", "copying")

    async def ended(self) -> None:
        """Wait until the round must be closed."""
        await self._end.wait()
