"""`nats-bridge run` with several workers, as processes of their own: what log, HTTP and processes say."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Self

import aiohttp

from tests.live.metrics_endpoint import Scrape
from tests.live.sidecar_process import SidecarProcess, document
from tests.live.until import until


class JointSidecar:
    """A running sidecar, and the file that it reads."""

    def __init__(self, url: str, config: Path, process: SidecarProcess) -> None:
        self.url = url
        self.config = config
        self.process = process
        self._http = ""

    @classmethod
    async def start(cls, url: str, directory: Path, *rules: dict[str, Any], workers: object = 2, **more: Any) -> Self:
        """Start, without waiting until it is ready."""
        config = directory / "joint.yaml"
        config.write_text(json.dumps(_document(url, *rules, workers=workers, **more)), "utf-8")
        return cls(url, config, await SidecarProcess.start(config))

    async def ready(self) -> Self:
        """Wait until every rule was started."""
        self._http = (await self.process.said("sidecar.ready"))["http"]
        return self

    async def get(self, path: str) -> tuple[int, str]:
        """Ask over HTTP."""
        async with aiohttp.ClientSession() as session, session.get(f"http://{self._http}{path}") as answer:
            return answer.status, await answer.text()

    async def status(self) -> dict[str, Any]:
        """What `GET /status` says."""
        found: dict[str, Any] = json.loads((await self.get("/status"))[1])
        return found

    async def scrape(self) -> Scrape:
        """What `/metrics` says."""
        return Scrape((await self.get("/metrics"))[1], "text/plain")

    def write(self, *rules: dict[str, Any], workers: object = 2, **more: Any) -> None:
        """Write the configuration."""
        self.config.write_text(json.dumps(_document(self.url, *rules, workers=workers, **more)), "utf-8")

    async def reload(self, *rules: dict[str, Any], workers: object = 2, **more: Any) -> dict[str, Any]:
        """Write the configuration and have it read; what became of that."""
        self.write(*rules, workers=workers, **more)
        async with aiohttp.ClientSession() as session, session.post(f"http://{self._http}/-/reload") as answer:
            found: dict[str, Any] = await answer.json()
            return found

    async def pids(self) -> dict[int, int]:
        """The workers' processes, by their numbers."""
        return {worker["worker"]: worker["pid"] for worker in (await self.status())["workers"]}

    async def kill_worker(self, number: int, how: signal.Signals = signal.SIGKILL) -> None:
        """Send one worker a signal that ends it, and wait until that is seen."""
        ends = self.events("worker.ended")
        os.kill((await self.pids())[number], how)
        await until(lambda: self.events("worker.ended") > ends)

    async def back(self, times: int = 1) -> None:
        """Wait until a worker was brought back, so many times in all."""
        await until(lambda: self.events("worker.back") >= times)

    def events(self, event: str, **fields: object) -> int:
        """How often something was logged."""
        return len(self.lines(event, **fields))

    def lines(self, event: str, **fields: object) -> list[dict[str, Any]]:
        """The lines of the log with this event and these fields."""
        return [line for line in self.process.entries if line["event"] == event and fields.items() <= line.items()]


@contextlib.asynccontextmanager
async def joint_sidecars(directory: Path) -> AsyncIterator[Callable[..., Awaitable[JointSidecar]]]:
    """`await start(url, rule, …)`: a sidecar with two workers; all processes are killed at the end."""
    started: list[JointSidecar] = []

    async def start(url: str, *rules: dict[str, Any], **more: Any) -> JointSidecar:
        started.append(sidecar := await JointSidecar.start(url, directory, *rules, **more))
        return sidecar

    try:
        yield start
    finally:
        for sidecar in started:
            for line in sidecar.lines("worker.started"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(line["pid"], signal.SIGKILL)
            await sidecar.process.kill()


def _document(url: str, *rules: dict[str, Any], workers: object, **more: Any) -> dict[str, Any]:
    still = {"http": {"listen": "127.0.0.1:0"}, "reload": {"watch": False}}
    return document(url, *rules, **({"workers": workers} if workers is not None else {}), **{**still, **more})
