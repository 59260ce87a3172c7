"""The life of started servers as a context manager: up on entry, ended and cleaned up on exit."""

import asyncio
import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Self


class Lifetime(ABC):
    """Common parts of a server and a cluster; a context manager, plain and async.

    Attributes:
        directory: the folder for configuration, stores and logs.
    """

    directory: Path
    _temporary: bool  # whether `close` removes the directory

    @abstractmethod
    def start(self) -> Self:
        """Start and wait until ready."""

    @abstractmethod
    def stop(self) -> None:
        """End the processes; stores stay."""

    @abstractmethod
    def interrupt(self) -> None:
        """Kill the processes, so that a `start` in another thread fails."""

    def close(self) -> None:
        """Stop, and remove the directory if it is a temporary one."""
        self.stop()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def started(self) -> Self:
        """Run `start` in a thread. If the task is cancelled meanwhile, remove everything that was started."""
        starting = asyncio.create_task(asyncio.to_thread(self.start))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            self.interrupt()
            await asyncio.gather(starting, return_exceptions=True)
            await asyncio.to_thread(self.close)
            raise

    async def __aenter__(self) -> Self:
        try:
            return await self.started()
        except Exception:
            await asyncio.to_thread(self.close)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)
