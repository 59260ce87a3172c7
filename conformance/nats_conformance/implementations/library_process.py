"""Runs a library's process: one request line in, one answer line out, with its failures."""

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Sequence
from typing import Any, Self

from nats_conformance.catalogue.case import Json
from nats_conformance.errors import SubjectError

_LONGEST_LINE = 16 * 2**20
_QUOTED = 200
_COMMAND = 60
_LAST_WORDS = 5.0
"""Seconds for the exit code of an ended process, and the rest of its stderr."""


class LibraryProcess:
    """A running library, created by `start`. After a SubjectError it is ended and cannot be used again.

    Attributes:
        is_ended: whether it is.
    """

    def __init__(self, command: Sequence[str], process: asyncio.subprocess.Process) -> None:
        self._name = _named(command)
        self._process = process
        self._next_id = 0
        self._complaints: deque[str] = deque(maxlen=5)
        self._listening = asyncio.create_task(self._listen())
        self.is_ended = False

    @classmethod
    async def start(cls, command: Sequence[str]) -> Self:
        """Start the command.

        Raises:
            SubjectError: the program does not exist.
        """
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=_LONGEST_LINE,
            )
        except OSError as error:
            raise SubjectError(f"the library '{_named(command)}' cannot be started: {error}") from None
        return cls(command, process)

    async def ask(self, op: str, limit: float, **members: Json) -> dict[str, Any]:
        """Send a request and wait for its answer, for `limit` seconds at most.

        Raises:
            SubjectError: it hangs, has ended, or returns no answer to this request.
        """
        self._next_id += 1
        request = {"id": self._next_id, "op": op, **members}
        try:
            async with asyncio.timeout(limit):
                line = await self._exchange(json.dumps(request).encode() + b"\n")
        except TimeoutError:
            raise await self.failed(f"did not answer '{op}' within {limit:g} s") from None
        except (OSError, ValueError) as error:  # ValueError: a line without an end
            raise await self.failed(f"cannot be talked to at '{op}': {error}") from None
        if not line.endswith(b"\n"):
            code = await self._code()
            after = f", after {_quoted(line)}" if line else ""
            raise await self.failed(f"ended with exit code {code} instead of answering '{op}'{after}")
        try:
            answer = json.loads(line)
        except ValueError:
            raise await self.failed(f"answered '{op}' with a line that is no JSON: {_quoted(line)}") from None
        if not isinstance(answer, dict) or answer.get("id") != self._next_id:
            raise await self.failed(
                f"answered '{op}', which has id {self._next_id}, with something else: {_quoted(line)}"
            )
        return answer

    async def close(self, limit: float) -> None:
        """Close stdin, and kill the process if it does not end."""
        assert self._process.stdin is not None
        if self.is_ended:
            return
        with contextlib.suppress(SubjectError):
            await self.ask("bye", limit)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                self._process.stdin.close()
                await self._process.wait()
        await self._end()

    async def _exchange(self, line: bytes) -> bytes:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line)
        # The last output of an ended library is more helpful than its closed pipe.
        with contextlib.suppress(ConnectionError):
            await self._process.stdin.drain()
        return await self._process.stdout.readline()

    async def _code(self) -> int | None:
        """Return the exit code if it has ended, not only closed its output."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS):
                await self._process.wait()
        return self._process.returncode

    async def _listen(self) -> None:
        assert self._process.stderr is not None
        while line := await self._process.stderr.readline():
            self._complaints.append(line.decode("utf-8", "replace").strip())

    async def failed(self, what: str) -> SubjectError:
        """End the process. Return an error with `what` went wrong and the library's own output."""
        await self._end()
        said = f"; on stderr: {' | '.join(self._complaints)}" if self._complaints else ""
        return SubjectError(f"the library '{self._name}' {what}{said}")

    async def _end(self) -> None:
        if self.is_ended:
            return
        self.is_ended = True
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        # A child process may keep the pipe open; the output so far is enough then.
        with contextlib.suppress(TimeoutError, ValueError):
            await asyncio.wait_for(self._listening, _LAST_WORDS)


def _shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[:longest] + "…"


def _named(command: Sequence[str]) -> str:
    return _shortened(" ".join(" ".join(command).split()), _COMMAND)


def _quoted(line: bytes) -> str:
    return repr(_shortened(line.decode("utf-8", "backslashreplace").strip(), _QUOTED))
