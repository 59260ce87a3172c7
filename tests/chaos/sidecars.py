"""Runs sidecars as processes, restarts them when they end, as an orchestrator does, and asks them over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nats_conformance.native_servers import free_port
from tests.chaos import stepped_clock
from tests.chaos.history import Historian

_ROOT = Path(__file__).resolve().parents[2]
_PAUSE = 0.3  # seconds between the end of a process and the next
_ASK_LIMIT = 5.0


class Sidecar:
    """One replica, for the whole run.

    Args:
        number: which replica.
        configure: returns the configuration, for a port and for the edited one or not.
        directory: for configuration and logs.
        historian: writes the history.
    """

    def __init__(
        self, number: int, configure: Callable[[int, bool], dict[str, Any]], directory: Path, historian: Historian
    ) -> None:
        self.number = number
        self.restarts = -1
        self._configure = configure
        self._directory = directory
        self._historian = historian
        self._port = free_port()
        self._edited = False
        self._process: asyncio.subprocess.Process | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._ending = False
        self._expected_end = ""
        self.config = directory / f"sidecar-{number}.yaml"
        self._clock = directory / f"sidecar-{number}.clock"
        stepped_clock.step(self._clock, 0)

    def start(self) -> None:
        """Start, and restart whenever it ends, until `stop`."""
        self._write()
        self._supervisor = asyncio.create_task(self._supervise())

    @property
    def pid(self) -> int:
        """The running process; 0 while there is none."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else 0

    def send(self, number: signal.Signals, meaning: str) -> int:
        """Send a signal to the process, if there is one, and record it; returns its id, or 0."""
        pid = self.pid
        if pid and self._process is not None:
            if meaning in ("killed", "asked to stop"):
                self._expected_end = meaning
            self._historian.record("sidecar", replica=self.number, pid=pid, what=meaning)
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)
        return pid

    async def gone(self, pid: int) -> None:
        """Wait until the process has ended."""
        while self.pid == pid:
            await asyncio.sleep(0.01)

    def edit(self) -> None:
        """Write the other of the two configurations."""
        self._edited = not self._edited
        self._write()

    def step_clock(self, seconds: int) -> None:
        """Let its clock be wrong by so much, now and after every restart."""
        stepped_clock.step(self._clock, seconds)

    async def ask(self, path: str) -> tuple[int, bytes]:
        """An HTTP answer: status and body; status 0 when there is none."""
        return await asyncio.to_thread(_get, f"http://127.0.0.1:{self._port}{path}")

    async def status(self) -> dict[str, Any] | None:
        """Return `/status`."""
        code, body = await self.ask("/status")
        if code != 200:
            return None
        try:
            answer: dict[str, Any] = json.loads(body)
        except ValueError:
            return None
        return answer

    def refusals(self) -> list[str]:
        """Return what servers refused its processes, but for subscriptions to answers, which are a fault."""
        lines = [
            line
            for log in self._directory.glob(f"sidecar-{self.number}-*.log")
            for line in log.read_text("utf-8", "replace").splitlines()
            if '"connection.refused"' in line
        ]
        said = [str(json.loads(line)["server_says"]) for line in lines]
        return [text for text in said if "_inbox." not in text.lower()]

    async def stop(self) -> int | None:
        """SIGTERM, and no new start; the exit code."""
        self._ending = True
        if not self.send(signal.SIGTERM, "asked to stop") and self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.wait([self._supervisor])
            return None
        process = self._process
        assert process is not None
        assert self._supervisor is not None
        try:
            async with asyncio.timeout(60):
                await self._supervisor
        except TimeoutError:
            process.kill()
            await process.wait()
        return process.returncode

    def kill(self) -> None:
        """End it at once; for the run's own end."""
        self._ending = True
        if self.pid and self._process is not None:
            self._process.kill()

    async def _supervise(self) -> None:
        while not self._ending:
            self.restarts += 1
            log = (self._directory / f"sidecar-{self.number}-{self.restarts}.log").open("wb")
            with log:
                self._process = process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "tests.chaos.stepped_clock", "run", "-c", str(self.config)),
                    env={**os.environ, stepped_clock.FILE: str(self._clock)},
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=_ROOT,
                )
            pid = process.pid
            self._historian.record("sidecar", replica=self.number, pid=pid, what="started")
            watch = asyncio.create_task(self._watch(pid))
            code = await process.wait()
            watch.cancel()
            expected, self._expected_end = self._expected_end, ""
            self._historian.record(
                "sidecar",
                replica=self.number,
                pid=pid,
                what="ended",
                code=code,
                expected=expected,
                last=self._last(log.name),
            )
            if not self._ending:
                await asyncio.sleep(_PAUSE)

    async def _watch(self, pid: int) -> None:
        """Record when it is ready, once."""
        while (await self.ask("/readyz"))[0] != 200:
            await asyncio.sleep(0.1)
        self._historian.record("sidecar", replica=self.number, pid=pid, what="ready")

    def _last(self, log: str) -> dict[str, Any]:
        """Return the process's last error, and each rule's counters, from its log."""
        counters: dict[str, Any] = {}
        error = ""
        for line in Path(log).read_text("utf-8", "replace").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                error = line
                continue
            if entry.get("event") == "rule.stopped":
                counters[entry.get("rule", "")] = {k: v for k, v in entry.items() if isinstance(v, int)}
            if entry.get("level") == "error":
                error = f"{entry.get('event')} {entry.get('rule', '')} {entry.get('reason', '')}"
        return {"counters": counters, "error": error}

    def _write(self) -> None:
        text = json.dumps(self._configure(self._port, self._edited), indent=1)  # JSON is YAML, too
        fresh = self.config.with_suffix(".new")
        fresh.write_text(text, "utf-8")
        fresh.replace(self.config)


def _get(url: str) -> tuple[int, bytes]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a loopback address of our own
    try:
        with opener.open(url, timeout=_ASK_LIMIT) as answer:
            return int(answer.status), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return int(error.code), error.read()
    except (OSError, ValueError):
        return 0, b""
