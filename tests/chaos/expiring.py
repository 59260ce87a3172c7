"""Lets the leases of a run expire together, again and again, each time when all of them are copied.

So none expires unread, and what the target must hold is known: the newest delete marker of each subject, and every
lease behind it. The markers expire as the leases do, but not while the stream has no `max_age`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.chaos.history import Historian, text_of
from tests.chaos.peers import Peer, place_of
from tests.chaos.plan import EXPIRY, STREAMS
from tests.chaos.surroundings import Surroundings
from tests.chaos.workload import Producer

_TURN = 1500  # leases
_PATIENCE = 120.0  # seconds until a turn is given up, because something is not copied; the checker reports it
_PAUSE = 0.1


class Expiring:
    """Ends leases.

    Args:
        producer: of the leases; it waits while they expire.
        surroundings: the servers.
        historian: records the delete markers.
        are_copied: whether the target holds the newest lease.
        quiet: no fault happens to servers while it is held: one that comes back removes what has expired, and places no
            marker (2.12.15).
    """

    def __init__(
        self,
        producer: Producer,
        surroundings: Surroundings,
        historian: Historian,
        are_copied: Callable[[], Awaitable[bool]],
        quiet: asyncio.Lock,
    ) -> None:
        self._producer = producer
        self._peer: Peer = surroundings.peer()
        self._config = surroundings.stream_config(producer.place, STREAMS[producer.place])
        self._historian = historian
        self._are_copied = are_copied
        self._quiet = quiet

    async def run(self, wanted: Callable[[], bool]) -> None:
        """End all leases after every so many, while wanted."""
        following = _TURN
        while wanted():
            if self._producer.sent >= following:
                await self.turn()
                following = self._producer.sent + _TURN
            await asyncio.sleep(_PAUSE)

    async def turn(self) -> None:
        """End all leases now, and record what is left of them."""
        async with self._producer.turn:
            while await self._copied():
                async with self._quiet:
                    if await self._are_copied():
                        await self._expire()
                        return

    async def close(self) -> None:
        """Leave the servers."""
        await self._peer.drop()

    async def _copied(self) -> bool:
        """Wait until everything is copied; whether it is."""
        try:
            async with asyncio.timeout(_PATIENCE):
                while not await self._are_copied():
                    await asyncio.sleep(_PAUSE)
        except TimeoutError:
            return False
        return True

    async def _expire(self) -> None:
        stream = self._producer.place
        newest = await self._newest(stream)
        if not newest:
            return
        await self._peer.api(f"STREAM.UPDATE.{stream}", {**self._config, "max_age": EXPIRY})
        # They expire in order, all at once, after that age; and their markers after as long again.
        while (await self._peer.api(f"STREAM.MSG.GET.{stream}", {"seq": newest})).get("message"):
            await asyncio.sleep(_PAUSE)
        await self._peer.api(f"STREAM.UPDATE.{stream}", self._config)
        left = await self._peer.read(stream)
        markers = [
            [place_of(each.reply)[0], text_of(each.message.subject)]
            for each in left or ()
            if b"\r\nNats-Marker-Reason: " in each.message.header_block
        ]
        self._historian.record("marked", stream=stream, rows=markers)

    async def _newest(self, stream: str) -> int:
        """The newest message that expires; 0 if there is none."""
        left = await self._peer.read(stream) or []
        stay = b"\r\nNats-TTL: never\r\n", b"\r\nNats-Marker-Reason: "
        return max(
            (place_of(each.reply)[0] for each in left if not any(line in each.message.header_block for line in stay)),
            default=0,
        )
