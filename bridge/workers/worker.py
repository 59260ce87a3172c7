"""A worker: a sidecar on its share of the rules, that does what the foreman says.

Theory of operation. The foreman asks for one step after the other (`open`, `begin`; for another configuration
`prepare`, `halt`, `start`, `finish`, or back by `abandon`, or by `withdraw` and `resume`), and at any time how things
stand (`look`). The worker ends when it is told to (`drain`), when it gets a signal, when a rule cannot go on, of which
it tells the foreman first, and when the foreman is gone, however that went: always as a sidecar ends, with what is in
hand finished.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Set
from pathlib import Path
from threading import Thread
from typing import Final, Self

import structlog

from bridge.cancelling import end_tasks
from bridge.connection import Link
from bridge.errors import BridgeError
from bridge.logs import configure_logs
from bridge.running import suit_hot_paths
from bridge.settings import Settings
from bridge.sidecar import Sidecar
from bridge.workers.channel import Channel, ChannelClosedError, Json
from bridge.workers.forms import checks_to, readings_to, settings_from

__all__ = ["main"]

_log = structlog.get_logger("bridge.worker")

_ALONE: Final = 30.0  # seconds that a worker may need to end without its foreman


def main(number: int, end: int) -> int:
    """Work until the end; the exit code.

    Args:
        number: which worker this is, from 1 on.
        end: the descriptor of its end of the pair of sockets.
    """
    structlog.contextvars.bind_contextvars(worker=number)
    suit_hot_paths()
    pair = socket.socket(fileno=end)
    Thread(target=_outlive, args=(os.dup(end),), daemon=True).start()
    return asyncio.run(_Worker(number).work(pair))


def _outlive(end: int) -> None:
    """End a worker that has outlived its foreman by too long: one whose event loop is held up does not see it go."""
    gone = select.poll()
    gone.register(end, 0)  # a hangup is told in any case
    gone.poll()
    time.sleep(_ALONE)
    os._exit(1)


class _ForemansLoops:
    """Has the foreman look for loops: only he sees all rules."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def refuse(self, rules: Set[str]) -> None:
        await self._channel.ask("loops", rules=sorted(rules))

    def following(self, _: Settings, __: Mapping[str, Link]) -> Self:
        return self

    def on_change(self, _: Callable[[], Awaitable[None]]) -> None:
        return  # the foreman looks again itself

    async def close(self) -> None:
        return


class _Worker:
    def __init__(self, number: int) -> None:
        self._number = number
        self._stopping = asyncio.Event()
        self._sidecar: Sidecar | None = None
        self._step: asyncio.Task[Json] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._channel: Channel

    async def work(self, pair: socket.socket) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the foreman reads the file
        channel = self._channel = await Channel.on(pair, self._answer)
        waiting = [asyncio.create_task(event.wait()) for event in (self._stopping, channel.closed)]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        await end_tasks(*waiting, self._step)
        if channel.closed.is_set() and not self._stopping.is_set():
            self._stopping.set()
            _log.warning("worker.alone", meaning="the foreman is gone; this worker finishes what is in hand and ends")
        sidecar = self._sidecar
        finished, error = True, None
        if sidecar is not None:
            error = sidecar.error
            finished = await sidecar.stop()
        await end_tasks(self._ending)
        await channel.close()
        if error is not None:
            return error.exit_code if isinstance(error, BridgeError) else 1
        return 0 if finished else 1

    def _on_signal(self) -> None:
        if self._stopping.is_set():
            os._exit(1)
        self._stopping.set()

    # -- what the foreman asks ---------------------------------------------------------------------------------------

    async def _answer(self, what: str, given: Json) -> Json:
        match what:
            case "drain":
                self._stopping.set()
                return {}
            case "look":
                return await self._look(given)
        # One after the other, and ended where the end comes first.
        assert self._step is None or self._step.done()
        self._step = asyncio.create_task(self._do(what, given))
        try:
            return await self._step
        except asyncio.CancelledError:
            raise BridgeError("the worker is draining", retriable=True) from None

    async def _do(self, step: str, given: Json) -> Json:
        if step == "open":
            await self._open(settings_from(given["settings"]), Path(given["config_path"]))
            return {}
        sidecar = self._working
        match step:
            case "begin":
                await sidecar.begin()
                return {"states": Counter(seat.state for seat in sidecar.seats)}
            case "prepare":
                await sidecar.prepare(settings_from(given["settings"]))
            case "halt":
                await sidecar.change.steps.halt()
            case "start":
                await sidecar.change.steps.begin()
            case "finish":
                await sidecar.change.steps.finish()
                sidecar.settle()
            case "abandon" if sidecar.is_changing:
                await sidecar.change.steps.abandon()
                sidecar.forget_change()
            case "withdraw" if sidecar.is_changing:
                await sidecar.change.steps.withdraw()
            case "resume" if sidecar.is_changing:
                await sidecar.change.steps.resume()
                sidecar.forget_change()
        return {}

    async def _open(self, settings: Settings, config_path: Path) -> None:
        configure_logs(settings.log)
        loops = _ForemansLoops(self._channel)
        sidecar = self._sidecar = Sidecar(settings, config_path, loops=lambda _, __: loops, worker=self._number)
        self._ending = asyncio.create_task(self._watch(sidecar))
        await sidecar.open()

    async def _watch(self, sidecar: Sidecar) -> None:
        """A rule or a connection ends the whole sidecar: the foreman hears why, so that the other workers end, too."""
        await sidecar.finished.wait()
        error = sidecar.error
        code = error.exit_code if isinstance(error, BridgeError) else 1
        with contextlib.suppress(ChannelClosedError):
            await self._channel.ask("failed", reason=str(error), exit_code=code)
        self._stopping.set()

    async def _look(self, given: Json) -> Json:
        sidecar = self._working
        state = sidecar.state
        match given["at"]:
            case "liveness":
                return {"checks": checks_to(await state.liveness())}
            case "readiness":
                return {"checks": checks_to(await state.readiness())}
            case "status":
                return {**await state.status(history=given["history"]), "process": _process()}
            case "readings":
                return {"readings": readings_to(sidecar.telemetry.readings()), "process": _process()}
            case at:
                raise BridgeError(f"there is nothing to look at that is called '{at}'")

    @property
    def _working(self) -> Sidecar:
        if self._sidecar is None:
            raise BridgeError("the worker has nothing to work on yet", retriable=True)
        return self._sidecar


def _process() -> Json:
    """What this process has used so far, and holds now."""
    return {"cpu_seconds": round(time.process_time(), 3), "memory_bytes": _resident()}


def _resident() -> int | None:
    if sys.platform != "linux":
        return None
    pages = Path("/proc/self/statm").read_text("utf-8").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
