"""Waits for expected results. Nothing here turns the absence of something into a fact."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from nats_conformance.errors import SubjectError
from nats_conformance.native_servers import NativeServer
from nats_conformance.raw_client import LIMIT, Collected, Delivered, RawClient

_LOOK = 0.01
_Found = TypeVar("_Found")


async def until(holds: Callable[[], bool], what: str) -> None:
    """Wait until a condition is true. Raise SubjectError if it never is."""

    async def found() -> bool | None:
        return holds() or None

    await first_that(found, what)


async def first_that(ask: Callable[[], Awaitable[_Found | None]], what: str) -> _Found:
    """Call `ask` repeatedly until the result is not None. Raise SubjectError if it stays None."""
    try:
        async with asyncio.timeout(LIMIT):
            while True:
                found = await ask()
                if found is not None:
                    return found
                await asyncio.sleep(_LOOK)
    except TimeoutError:
        raise SubjectError(f"{what} did not come within {LIMIT:g} s") from None


async def arrived(collected: Collected, count: int) -> list[Delivered]:
    """Return the first deliveries of a subscription, once it has `count` of them."""
    await until(lambda: len(collected.deliveries) >= count, f"message {count} of a subscription")
    return collected.deliveries[:count]


async def has_ended(server: NativeServer, client: RawClient) -> bool:
    """Return whether a server process has ended, which would have closed this connection a moment before."""
    try:
        await client.flush()
    except SubjectError:
        await until(lambda: server.died, "the end of the server process")
    return server.died
