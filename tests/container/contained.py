"""A container that runs: its log, its processes, a look into it, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

from tests.container.cell import Cell
from tests.live.sidecar_process import SidecarProcess
from tests.live.until import LIMIT, until

__all__ = ["Contained", "contained", "finished"]


class Contained:
    """A started cell.

    Args:
        cell: what was started.
        outer: the process that made the namespaces; it waits for process 1 in them.
    """

    def __init__(self, cell: Cell, outer: asyncio.subprocess.Process) -> None:
        self.cell = cell
        self.log = SidecarProcess(outer)
        self._outer = outer.pid

    @property
    def pid(self) -> int:
        """The number outside of the process that is number 1 inside; 0 when it is not there (yet)."""
        children = Path(f"/proc/{self._outer}/task/{self._outer}/children")
        with contextlib.suppress(OSError):
            return int((children.read_text().split() or ["0"])[0])
        return 0

    def facts(self) -> dict[str, str]:
        """/proc/…/status of process 1."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    def children(self) -> list[str]:
        """The processes that process 1 has started, by their numbers outside."""
        threads = Path(f"/proc/{self.pid}/task").iterdir()
        return [number for thread in threads for number in (thread / "children").read_text().split()]

    async def run(self, *command: str) -> tuple[int, str]:
        """Execute a command in the running container, as `docker exec` and a health check do: exit code and output."""
        enter = ["nsenter", f"--target={self.pid}", "--mount", "--pid", "--ipc", "--uts", "--net", "--root", "--wd"]
        enter += [f"--setuid={self.cell.user}", f"--setgid={self.cell.group}"]
        return await finished(*enter, "--", *command, environment=self.cell.environment)

    async def stop(self, number: signal.Signals) -> int:
        """Send a signal to process 1; the exit code."""
        os.kill(self.pid, number)
        return await self.log.ended()


@contextlib.asynccontextmanager
async def contained(cell: Cell) -> AsyncIterator[Contained]:
    """Start a cell; it is killed at the end."""
    outer = await asyncio.create_subprocess_exec(
        *cell.started_by(), stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    started = Contained(cell, outer)
    try:
        await until(lambda: started.pid != 0 or outer.returncode is not None)
        yield started
    finally:
        # Not the one outside: what it asked the kernel to do with its child is forgotten when that changes its user.
        with contextlib.suppress(ProcessLookupError):
            if started.pid:
                os.kill(started.pid, signal.SIGKILL)
        await started.log.ended()


async def finished(*command: str, environment: dict[str, str] | None = None) -> tuple[int, str]:
    """Run a command to its end: exit code, and output of both kinds."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(LIMIT):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, output.decode()
