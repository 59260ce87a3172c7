"""A container that runs: its log, its processes, a look into it, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

from tests.container.engine import Image
from tests.live.sidecar_process import SidecarProcess
from tests.live.until import LIMIT


class Contained:
    """A started container.

    Args:
        image: what it runs.
        name: what the engine calls it.
        attached: the engine's process, which has the output and the exit code of process 1.
    """

    def __init__(self, image: Image, name: str, attached: asyncio.subprocess.Process) -> None:
        self._engine = image.engine
        self._name = name
        self.log = SidecarProcess(attached)

    @property
    def pid(self) -> int:
        """The number outside of the process that is number 1 inside."""
        return int(self._engine.run("container", "inspect", "--format={{.State.Pid}}", self._name))

    def facts(self) -> dict[str, str]:
        """/proc/…/status of process 1."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    def children(self) -> list[str]:
        """The processes that process 1 has started, by their numbers outside."""
        threads = Path(f"/proc/{self.pid}/task").iterdir()
        return [number for thread in threads for number in (thread / "children").read_text().split()]

    async def run(self, *command: str) -> tuple[int, str]:
        """Execute a command in it: exit code and output."""
        return await finished(*self._engine.command("exec", self._name, *command))

    async def stop(self, number: signal.Signals) -> int:
        """Send a signal to process 1; the exit code."""
        self._engine.run("kill", f"--signal={number.name}", self._name)
        return await self.log.ended()


@contextlib.asynccontextmanager
async def contained(image: Image, mounts: dict[str, Path]) -> AsyncIterator[Contained]:
    """Run an image with folders of the outside, which it can only read; it is killed at the end."""
    name = f"nats-bridge-{uuid.uuid4().hex[:8]}"
    volumes = [f"--volume={outside}:{inside}:ro" for inside, outside in mounts.items()]
    options = ("--name", name, *volumes)
    attached = await asyncio.create_subprocess_exec(
        *image.started_by(options=options), stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    started = Contained(image, name, attached)
    try:
        yield started
    finally:
        image.engine.run("rm", "--force", "--ignore", "--time=0", name)
        await started.log.ended()


async def finished(*command: str) -> tuple[int, str]:
    """Run a command to its end: exit code, and output of both kinds."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
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
