"""Cancels tasks reliably, and waits for events for a limited time."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from typing import Any

_PATIENCE = 0.2  # seconds until a cancellation counts as swallowed


async def end_tasks(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel tasks until they have ended, and ignore their results.

    Once is not enough: `asyncio.wait_for`, which nats-py uses for its requests, swallows a cancellation that
    comes together with the result (Python before 3.12), and the task would never end.

    For the same reason the caller can be cancelled twice, the second time in here. It does not leave its tasks then.

    Raises:
        asyncio.CancelledError: the caller was cancelled; the tasks have ended.
    """
    ending = [task for task in tasks if task is not None]
    cancelled = None
    while left := [task for task in ending if not task.done()]:
        for task in left:
            task.cancel()
        try:
            await asyncio.wait(left, timeout=_PATIENCE)
        except asyncio.CancelledError as error:
            cancelled = error
    for task in ending:
        if not task.cancelled():
            task.exception()  # seen: asyncio has nothing to report later
    if cancelled is not None:
        raise cancelled


async def first_of(*awaited: Coroutine[Any, Any, object] | asyncio.Future[Any], within: float | None = None) -> None:
    """Wait until one is done, or for `within` seconds. Cancel the coroutines, but not the tasks and futures."""
    futures = [each for each in awaited if isinstance(each, asyncio.Future)]
    coroutines = [asyncio.create_task(each) for each in awaited if not isinstance(each, asyncio.Future)]
    try:
        await asyncio.wait([*futures, *coroutines], timeout=within, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_tasks(*coroutines)


async def happens(event: asyncio.Event, *, within: float | None) -> bool:
    """Wait until an event is set, at most `within` seconds. Return whether it is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within):
            await event.wait()
    return event.is_set()


def task_over(
    run: Callable[[Awaitable[None]], Coroutine[Any, Any, None]],
    first: Awaitable[None],
    context: Context | None = None,
) -> asyncio.Task[None]:
    """Start `run(first)` as a task.

    A task that is cancelled before its first step never awaits `first`. Its coroutine is then closed, so Python does
    not report it.
    """
    task = asyncio.create_task(run(first), context=context)
    if isinstance(first, Coroutine):
        task.add_done_callback(lambda _: first.close())
    return task
