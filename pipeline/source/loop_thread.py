"""An event loop of its own, in a thread: connections stay alive while the reader does something else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from typing import Any, Self, TypeVar

_Result = TypeVar("_Result")


class LoopThread:
    """Runs coroutines for callers that are not asynchronous.

    A context manager; at its end the loop is closed, with whatever still runs in it cancelled.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="jetstream", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """The coroutine's result, or its error; cancelled when the caller is interrupted."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise
        except BaseException:
            future.cancel()
            raise

    @contextmanager
    def within(self, context: AbstractAsyncContextManager[_Result]) -> Iterator[_Result]:
        """Enter a context in the loop, such as a connection, and leave it there."""
        stack = AsyncExitStack()
        try:
            yield self.run(stack.enter_async_context(context))
        finally:
            self.run(stack.aclose())

    def close(self) -> None:
        """End whatever still runs, then the loop."""
        if self._loop.is_closed():
            return
        self.run(_end_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _end_others() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
