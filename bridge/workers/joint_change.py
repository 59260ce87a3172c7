"""From one configuration to another in several processes: all or nothing.

Theory of operation. Each worker does what a sidecar alone does for a reload (`bridge.changeover`), one step at a time,
and no worker begins a step before all have done the one before it. `prepare` changes nothing anywhere: whatever is in
the way is found while every rule still works. Then all halt what changes, then all start what is new: a rule may take
over from one that was on another worker. Only when all have, it is decided; until then any failure, a worker's death
included, takes all of them back. Every worker that is started later gets what was decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from bridge.changeover import RolledBackError
from bridge.errors import BridgeError, ConnectionLostError
from bridge.settings import Settings
from bridge.workers.channel import Json
from bridge.workers.forms import settings_to
from bridge.workers.shares import share_of
from bridge.workers.slot import Slot

__all__ = ["JointChange"]


class JointChange:
    """One change of the configuration.

    Args:
        slots: all workers.
        settings: the new configuration.
        shares: the worker of each of its rules.
        launch: starts a worker that has had no rules until now and has it look at its share.
        end: ends a worker.
    """

    def __init__(
        self,
        slots: Sequence[Slot],
        settings: Settings,
        shares: Mapping[str, int],
        launch: Callable[[Slot, Settings], Awaitable[None]],
        end: Callable[[Slot], Awaitable[bool]],
    ) -> None:
        self._settings = settings
        self._launch = launch
        self._end = end
        self._views = {slot.number: share_of(settings, shares, slot.number) for slot in slots}
        self._there = [slot for slot in slots if slot.rules]
        self._new = [slot for slot in slots if not slot.rules and self._views[slot.number].rules]

    async def prepare(self) -> None:
        """Have every worker look whether its share can run; where one cannot, nothing has changed.

        Raises:
            BridgeError: what is in the way.
        """
        if (slot := next((slot for slot in self._there if not slot.at_work), None)) is not None:
            raise ConnectionLostError(f"{slot.name} {slot.down}; another configuration is taken when it is at work")
        try:
            await _all(
                *(self._ask(slot, "prepare", settings=settings_to(self._views[slot.number])) for slot in self._there),
                *(self._launch(slot, self._views[slot.number]) for slot in self._new),
            )
        except BaseException:
            await self.abandon()
            raise

    async def abandon(self) -> None:
        """Leave everything as it was. After `prepare`."""
        await self._take_back("abandon")

    async def apply(self) -> None:
        """Stop what is no more, then start what is new; after that it is decided.

        Raises:
            RolledBackError: a start failed, or a worker died; what was there is at work again.
        """
        try:
            await _all(*(self._ask(slot, "halt") for slot in self._there))
            await _all(
                *(self._ask(slot, "start") for slot in self._there), *(self._ask(slot, "begin") for slot in self._new)
            )
        except BridgeError as error:
            # What is new is gone everywhere before anything of before is back.
            await self._take_back("withdraw")
            await self._take_back("resume")
            raise RolledBackError(
                f"{error}; it was found at the start only, so rules were stopped and started again as they were",
                retriable=error.retriable,
            ) from None

    async def finish(self) -> None:
        """Let go of what nobody needs any more; a worker that dies meanwhile starts with the new configuration."""
        await asyncio.gather(
            *(self._ask(slot, "finish") for slot in self._there if slot.process is not None), return_exceptions=True
        )
        for slot in (*self._there, *self._new):
            slot.rules = tuple(rule.name for rule in self._views[slot.number].rules)
            if not slot.rules:
                await self._end(slot)

    async def _take_back(self, step: str) -> None:
        # Who has died starts again with what was there; who was not there is not needed.
        await asyncio.gather(
            *(self._ask(slot, step) for slot in self._there if slot.process is not None),
            *(self._end(slot) for slot in self._new if slot.process is not None),
            return_exceptions=True,
        )

    async def _ask(self, slot: Slot, what: str, **given: str) -> Json:
        if slot.process is None:
            raise ConnectionLostError(f"{slot.name} {slot.down}")
        return await slot.process.ask(what, **given)


async def _all(*steps: Awaitable[object]) -> None:
    """Let all come to their end, then raise the first error, if there was one."""
    for result in await asyncio.gather(*steps, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
