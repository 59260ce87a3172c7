"""The states of a round of copying, without I/O. Publisher, reader and entry change them; its end wakes all waiters."""

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
"""A round is `opening` until its reader runs, and sends the first messages already then. After that it is `copying`.

`broken`: the state of the target is unknown, so the next round begins. `failed`: an error ends the rule. `draining`:
the round stops reading and awaits messages in flight. `leaving`: it does not await them. `cut`: another replica may
write by now, so nothing is sent to any server. In all states but the first two the round ends. In all but these and
`draining` the publisher sends nothing more.
"""

_SENDING = frozenset({"opening", "copying", "draining"})


class RoundLife:
    """The state of one round.

    Args:
        interrupted: called with the reason when the state of the target is unknown.
        failed: called with the error that ends the rule.

    Attributes:
        over: whether nothing more is sent.
        closing: the event that is closing it, once closing began.
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
        """Interrupt the round, because the state of the target is unknown. No effect once nothing more is sent."""
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
