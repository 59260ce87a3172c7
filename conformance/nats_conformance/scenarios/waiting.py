"""Waiting for what must come. Nothing here turns the absence of something into a fact."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from nats_conformance.errors import SubjectError
from nats_conformance.raw_client import LIMIT, Collected, Delivered

_LOOK = 0.01
_Found = TypeVar("_Found")


async def until(holds: Callable[[], bool], what: str) -> None:
    """Wait until something is so; raises SubjectError when it does not become so."""

    async def found() -> bool | None:
        return holds() or None

    await first_that(found, what)


async def first_that(ask: Callable[[], Awaitable[_Found | None]], what: str) -> _Found:
    """Ask again and again until the answer is not None; raises SubjectError when none comes."""
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
    """The first deliveries of a subscription, as soon as there are so many."""
    await until(lambda: len(collected.deliveries) >= count, f"message {count} of a subscription")
    return collected.deliveries[:count]
