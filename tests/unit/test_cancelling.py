"""Tasks end even where a cancellation is swallowed."""

import asyncio
import inspect
from collections.abc import Awaitable

from nats_bridge.client.tasks import end_tasks, task_over


async def test_a_task_that_swallows_its_first_cancellations_ends() -> None:
    swallowed = 0
    waiting = asyncio.Event()

    async def stubborn() -> None:
        nonlocal swallowed
        while True:
            try:
                waiting.set()
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if swallowed == 2:
                    raise
                swallowed += 1

    task = asyncio.create_task(stubborn())
    await waiting.wait()
    await end_tasks(task)
    assert task.cancelled()
    assert swallowed == 2


async def test_a_task_does_not_leave_its_own_tasks_when_it_is_cancelled_again() -> None:
    """A run would start after it was stopped, and leave a subscription open."""
    waiting, free = asyncio.Event(), asyncio.Event()

    async def stubborn() -> None:
        while not free.is_set():
            try:
                waiting.set()
                await free.wait()
            except asyncio.CancelledError:
                continue

    inner = asyncio.create_task(stubborn())

    async def own() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await end_tasks(inner)

    outer = asyncio.create_task(own())
    await waiting.wait()
    left = []
    for _ in range(3):
        outer.cancel()
        await asyncio.wait([outer], timeout=0)
        left.append(outer.done())
    free.set()
    await asyncio.wait([outer, inner])
    assert left == [False] * 3
    assert outer.cancelled()


async def test_failed_finished_and_absent_tasks_are_no_trouble() -> None:
    async def fail() -> None:
        raise ValueError("on purpose")

    async def finish() -> None:
        return None

    tasks = [asyncio.create_task(fail()), asyncio.create_task(finish())]
    await asyncio.wait(tasks)
    await end_tasks(*tasks, None)
    assert all(task.done() for task in tasks)


async def test_nothing_to_end() -> None:
    await end_tasks()


async def test_what_a_task_never_came_to_is_closed() -> None:
    steps = []

    async def first() -> None:
        steps.append("first")

    async def run(begun: Awaitable[None]) -> None:
        steps.append("run")
        await begun

    left = first()
    await end_tasks(task_over(run, left))
    assert (steps, inspect.getcoroutinestate(left)) == ([], inspect.CORO_CLOSED)
    await task_over(run, first())
    assert steps == ["run", "first"]
