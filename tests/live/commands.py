"""Commands that end on their own: as processes, and in this one, where no test is about the process."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nats_bridge.cli.entry import main
from tests.live.until import LIMIT


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command printed and ended with."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The JSON that it printed, when all was well."""
        assert self.code == 0, self.err
        found: dict[str, Any] = json.loads(self.out)
        return found


async def command(*arguments: str, folder: Path | None = None, stdin: str = "") -> Ran:
    """Run `nats-bridge` with these arguments to its end, as a process."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nats_bridge", *arguments),
        cwd=folder,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(LIMIT):
        out, err = await process.communicate(stdin.encode())
    assert process.returncode is not None
    return Ran(process.returncode, out.decode(), err.decode())


async def command_here(*arguments: str, folder: Path | None = None, stdin: str = "") -> Ran:
    """The same in a thread of this process, without the second of CPU time that a new Python imports for."""
    return await asyncio.to_thread(_run, arguments, folder or Path.cwd(), stdin)


def _run(arguments: tuple[str, ...], folder: Path, stdin: str) -> Ran:
    code: object = 0
    with contextlib.chdir(folder), _own_streams(stdin) as (out, err):
        try:
            main(arguments)
        except SystemExit as end:
            code = end.code
        out.flush()
        err.flush()
        assert isinstance(code, int)
        return Ran(code, out.buffer.getvalue().decode(), err.buffer.getvalue().decode())  # type: ignore[attr-defined]


@contextmanager
def _own_streams(stdin: str) -> Iterator[tuple[io.TextIOWrapper, io.TextIOWrapper]]:
    """Standard streams of this thread alone: the log of a sidecar of the test is not among the output."""
    before = sys.stdin, sys.stdout, sys.stderr
    given, out, err = (io.TextIOWrapper(io.BytesIO(data), "utf-8") for data in (stdin.encode(), b"", b""))
    sys.stdin, sys.stdout, sys.stderr = (
        _OfThread(own, others) for own, others in zip((given, out, err), before, strict=True)
    )
    try:
        yield out, err
    finally:
        sys.stdin, sys.stdout, sys.stderr = before


class _OfThread:
    """A stream for the thread that makes it, and another one for all others."""

    def __init__(self, own: io.TextIOWrapper, others: Any) -> None:
        self._own = own
        self._others = others
        self._thread = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own if threading.get_ident() == self._thread else self._others, name)
