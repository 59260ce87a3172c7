"""Limits requests to a number for each second, independent of the number of links."""

import asyncio


class RequestRate:
    """Spreads requests evenly.

    Args:
        per_second: the number of requests in a second.
    """

    def __init__(self, per_second: float) -> None:
        self._between = 1 / per_second
        self._free_at = 0.0
        self._turns = asyncio.Lock()

    def delay(self, now: float, requests: int = 1) -> float:
        """Reserve the next requests.

        Args:
            now: seconds of a monotonic clock.

        Returns:
            Seconds until they may be sent.
        """
        at = max(self._free_at, now)
        self._free_at = at + requests * self._between
        return at - now

    async def turn(self, requests: int = 1) -> None:
        """Wait until this many requests may be sent. A caller that gives up early does not delay those after it."""
        async with self._turns:
            delay = self.delay(asyncio.get_running_loop().time(), requests)
            if delay > 0:
                await asyncio.sleep(delay)
