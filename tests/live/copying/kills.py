"""Kills of a sidecar that copies, at random moments."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.live.copies import Copies
from tests.live.processes import stands_still
from tests.live.sidecar_process import Load, SidecarProcess, sidecar_processes
from tests.live.until import until


async def killed_at_random(
    here: Copies, load: Load, complete: Callable[[], Awaitable[None]], url: str, times: int, folder: Path
) -> int:
    """Publish a load while sidecars are killed, and let the last one `complete` it.

    Returns how many kills left something uncopied. However fast it copies, the first one does.
    """
    chance = random.Random(here.name)
    during_load = 0
    async with sidecar_processes(folder) as start:

        async def started() -> SidecarProcess:
            process: SidecarProcess = await start(url, here.rule())
            await process.ready()
            return process

        for turn in range(times):
            process = await started()
            before = int((await here.state())["messages"])
            burst = asyncio.create_task(load.burst(3000))
            await here.holds(before + chance.randrange(1, 3000))
            if turn == 0:
                process.send(signal.SIGSTOP)
                await until(lambda: stands_still(process.pid))  # noqa: B023
                await load.burst(3000)
            await process.kill()
            await burst
            during_load += int((await here.state())["messages"]) < load.published
        process = await started()
        await complete()
        assert await process.stop() == 0, process.log
    return during_load
