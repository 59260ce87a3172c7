"""A separate event loop in a thread, so connections stay alive while the reader does something else."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from typing import Any, Self, TypeVar

_Result = TypeVar("_Result")


class LoopThread:
    """Runs coroutines for callers that are not asynchronous.

    A context manager. At its end, running work is cancelled and the loop is closed.
    """

    def __init__(self) -> None:
        serving: Future[asyncio.AbstractEventLoop] = Future()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(serving)), name="jetstream", daemon=True)
        self._thread.start()
        self._loop = serving.result()

    async def _serve(self, serving: Future[asyncio.AbstractEventLoop]) -> None:
        serving.set_result(asyncio.get_running_loop())
        await self._over.wait()

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Return the coroutine's result, or raise its error. It is cancelled when the caller is interrupted."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()
