"""A worker as the foreman sees it: one process, from its start to its end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Self

from bridge.cancelling import end_tasks
from bridge.errors import BridgeError
from bridge.workers.channel import Channel, ChannelClosedError, Json

__all__ = ["Silent", "WorkerProcess"]

_PATIENCE: Final = 3.0  # seconds that somebody who looks waits for an answer; `nats-bridge status` waits for five


@dataclass(frozen=True, slots=True)
class Silent:
    """A worker that does not answer.

    Attributes:
        seconds: since it was asked.
    """

    seconds: float

    def __str__(self) -> str:
        return f"has not answered for {self.seconds:.0f} s"


class WorkerProcess:
    """A process.

    Args:
        number: of the worker.
        process: the process.
        channel: what it is asked on.

    Attributes:
        began: when it was started.
    """

    def __init__(self, number: int, process: asyncio.subprocess.Process, channel: Channel) -> None:
        self._number = number
        self.began = datetime.now(UTC)
        self._process = process
        self._channel = channel
        self._looks: dict[tuple[str, bool], tuple[float, asyncio.Task[Json]]] = {}

    @classmethod
    async def launch(cls, number: int, answer: Callable[[str, Json], Awaitable[Json]]) -> Self:
        """Start a process, of a session of its own: a terminal's Ctrl-C is the foreman's matter.

        Args:
            number: of the worker.
            answer: answers what the worker asks.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            # A fresh interpreter that finds the program where this one does, and nothing in the current folder.
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "bridge.workers", str(number), str(theirs.fileno())),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        return cls(number, process, await Channel.on(ours, answer))

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    async def ask(self, what: str, **given: Any) -> Json:
        """Its answer.

        Raises:
            AnsweredError: it refuses.
            ChannelClosedError: it ended; with the way it did.
        """
        try:
            return await self._channel.ask(what, **given)
        except ChannelClosedError:
            raise ChannelClosedError(f"worker {self._number} ended ({await self.ended()})", retriable=True) from None

    async def look(self, at: str, *, history: bool = False) -> Json | Silent | None:
        """What it says of itself; None if it is gone, or cannot tell yet.

        One question of a kind is asked at a time, so that nothing piles up before a worker that does not answer; who
        asks later waits as long as is left of the first one's patience.
        """
        kind = at, history
        asked, answer = self._looks.get(kind, (0.0, None))
        if answer is None or answer.done():
            asked, answer = time.monotonic(), asyncio.create_task(self._channel.ask("look", at=at, history=history))
            self._looks[kind] = asked, answer
        await asyncio.wait({answer}, timeout=max(asked + _PATIENCE - time.monotonic(), 0))
        if not answer.done():
            return Silent(time.monotonic() - asked)
        try:
            return await answer
        except BridgeError:
            return None

    async def ended(self) -> str:
        """Wait for its end; how it ended, in words."""
        code = await self._process.wait()
        if code >= 0:
            return f"exit code {code}"
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}"
        return f"killed by signal {-code}"

    async def drained(self, patience: float) -> int:
        """Have it finish what is in hand and end; the exit code.

        Args:
            patience: seconds after which it is killed.
        """
        with contextlib.suppress(BridgeError, TimeoutError):
            async with asyncio.timeout(patience):
                await self._channel.ask("drain")
                await self._process.wait()
        self.kill()
        code = await self._process.wait()
        await self.close()
        return code

    def kill(self) -> None:
        """End it at once, if it is there."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def close(self) -> None:
        """Let go of what is left, after the end."""
        await end_tasks(*(answer for _, answer in self._looks.values()))
        await self._channel.close()
