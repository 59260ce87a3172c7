"""`nats-bridge` as a process that is forked from one that has imported it: a new Python imports for 0.4 CPU seconds.

`tests/live/operations/test_no_writes.py` and `tests/unit/test_startup_imports.py` start a new one.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import Mapping
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Self

from nats_bridge.cli import main

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "nats_bridge.app.process",
        "nats_bridge.cli.entry",
        "nats_bridge.cli.sidecar",
        "nats_bridge.http.application",
        "nats_bridge.kinds.copying.run",
        "nats_bridge.kinds.republish.run",
        __name__,
    ]
)


class ForkedProcess:
    """A running command, with those members of asyncio's processes that tests use.

    Attributes:
        stderr: its standard error.
        returncode: None until it has ended; a negative number is a signal's.
    """

    def __init__(self, process: ForkServerProcess, stderr: asyncio.StreamReader) -> None:
        assert process.pid is not None
        self._process = process
        self.pid = process.pid
        self.stderr = stderr
        self.returncode: int | None = None
        self._ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(process.sentinel, self._end)

    @classmethod
    async def start(cls, *arguments: str) -> Self:
        """Run `nats-bridge` with these arguments, in this folder and environment."""
        read, write = os.pipe()
        stderr = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(stderr)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(read, "rb", 0))
        with Connection(write, readable=False) as end:
            process = _FORKS.Process(target=_run, args=(end, dict(os.environ), arguments), daemon=True)
            process.start()
        return cls(process, stderr)

    def send_signal(self, number: int) -> None:
        """Raises ProcessLookupError if it has ended."""
        if self.returncode is not None:
            raise ProcessLookupError
        os.kill(self.pid, number)

    async def wait(self) -> int:
        """The exit code."""
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._process.sentinel)
        self._process.join()
        self.returncode = self._process.exitcode
        self._process.close()
        self._ended.set()


def _run(stderr: Connection, environment: Mapping[str, str], arguments: tuple[str, ...]) -> None:
    os.dup2(stderr.fileno(), 2)
    stderr.close()
    os.environ.clear()
    os.environ.update(environment)
    main(arguments)
