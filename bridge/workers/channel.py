"""Questions and answers between the foreman and a worker: lines of JSON, both ways, on a pair of Unix sockets.

Each side asks when it wants, and answers while others are being answered. Nobody else can reach the sockets. When one
side is gone, however it went, the other one sees the end.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, Final, Self, TypeAlias

from bridge.cancelling import end_tasks
from bridge.errors import EXIT_NO, BridgeError

__all__ = ["Answer", "AnsweredError", "Channel", "ChannelClosedError", "Json"]

Json: TypeAlias = dict[str, Any]
Answer: TypeAlias = Callable[[str, Json], Awaitable[Json]]

_LONGEST: Final = 64 << 20  # bytes of a line; a state with its history is the longest


class ChannelClosedError(BridgeError):
    """The other side is gone."""

    code = "worker"


class AnsweredError(BridgeError):
    """The other side refuses, as its error said.

    Args:
        told: the error as plain data.
    """

    def __init__(self, told: Json) -> None:
        super().__init__(str(told["message"]), retriable=bool(told["retriable"]))
        self.code = str(told["code"])
        self.exit_code = int(told["exit_code"])
        self._passing = bool(told["passing"])

    @property
    def passing(self) -> bool:
        """See `BridgeError`."""
        return self._passing


class Channel:
    """One side.

    Args:
        reader: what the other side says.
        writer: where to say something.
        answer: called with a question and what belongs to it; a `BridgeError` is the answer, too.

    Attributes:
        closed: set when the other side is gone.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Answer) -> None:
        self.closed = asyncio.Event()
        self._reader = reader
        self._writer = writer
        self._answer = answer
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[Json]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def on(cls, end: socket.socket, answer: Answer) -> Self:
        """A channel on one end of a pair."""
        reader, writer = await asyncio.open_unix_connection(sock=end, limit=_LONGEST)
        return cls(reader, writer, answer)

    async def ask(self, what: str, **given: Any) -> Json:
        """The other side's answer.

        Raises:
            AnsweredError: it refuses.
            ChannelClosedError: it is gone.
        """
        if self.closed.is_set():
            raise _gone()
        number = next(self._numbers)
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            self._say({"number": number, "ask": what, "given": given})
            return await answer
        finally:
            self._asked.pop(number, None)

    async def close(self) -> None:
        """Say and hear nothing more."""
        await end_tasks(self._reading, *self._answering)
        self._writer.close()

    async def _read(self) -> None:
        try:
            while line := await self._reader.readline():
                message = json.loads(line)
                if "ask" in message:
                    task = asyncio.create_task(self._reply(message))
                    self._answering.add(task)
                    task.add_done_callback(self._answering.discard)
                elif (asked := self._asked.get(message["number"])) is not None and not asked.done():
                    if "error" in message:
                        asked.set_exception(AnsweredError(message["error"]))
                    else:
                        asked.set_result(message["answer"])
        except (OSError, ValueError):
            pass  # cut off, or in the middle of a line
        finally:
            self.closed.set()
            for asked in self._asked.values():
                if not asked.done():
                    asked.set_exception(_gone())

    async def _reply(self, message: Json) -> None:
        number = message["number"]
        try:
            answer = await self._answer(message["ask"], message["given"])
        except BridgeError as error:
            self._say({"number": number, "error": _told(error)})
        except Exception as error:
            unexpected = BridgeError(f"unexpected {type(error).__name__}: {error}")
            self._say({"number": number, "error": _told(unexpected)})
        else:
            self._say({"number": number, "answer": answer})

    def _say(self, message: Json) -> None:
        if not self._writer.is_closing():
            self._writer.write(json.dumps(message).encode() + b"\n")


def _told(error: BridgeError) -> Json:
    return {
        "message": str(error),
        "code": error.code,
        "exit_code": error.exit_code or EXIT_NO,
        "retriable": error.retriable,
        "passing": error.passing,
    }


def _gone() -> ChannelClosedError:
    return ChannelClosedError("the other process is gone")
