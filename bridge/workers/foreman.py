"""The foreman: a sidecar whose rules are on several processes. It runs no rule itself.

Theory of operation. Every worker is a sidecar on a share of the configuration (`bridge.workers.worker`). What concerns
all rules together is the foreman's: reading the file, looking for loops, HTTP, signals, who is at work. A worker that
ends without a word is started again, and its rules go on as after a crash; the others notice nothing. One that says why
it ends, ends the whole sidecar, as the same thing would in one process.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog

from bridge.cancelling import end_tasks
from bridge.connection import Link
from bridge.errors import BridgeError, ConfigError, ConnectionLostError, RuleRefusedError
from bridge.http.listener import Listener
from bridge.links import close_links, connections_of, open_links
from bridge.logs import configure_logs
from bridge.loop_check import AccountLoops, LoopCheck
from bridge.reload_plan import ReloadPlan, plan_reload
from bridge.reloading import Reloader, ReloadFacts, Taken
from bridge.rule_seat import RuleSeat
from bridge.settings import Settings
from bridge.telemetry.service import Telemetry
from bridge.workers.channel import Json
from bridge.workers.forms import settings_to
from bridge.workers.joint_change import JointChange
from bridge.workers.joint_state import JointState
from bridge.workers.shares import share_of, share_out
from bridge.workers.slot import PAUSES, EndedError, Slot
from bridge.workers.worker_process import WorkerProcess

__all__ = ["Foreman"]

_Answer = TypeVar("_Answer")

_log = structlog.get_logger("bridge.sidecar")

_DRAIN: Final = 28.0  # seconds for a worker to finish; a rule has 25, and Kubernetes' default grace period is 30
_PROVEN: Final = 60.0  # seconds of work after which an end counts as the first one again


class Foreman:
    """All rules of one configuration, on several processes.

    Args:
        settings: the configuration.
        workers: how many processes there may be.
        config_path: the file that it came from, which `reload` reads again.
        config_hash: of that file's content, as `bridge.file_watch` makes it, taken before the file was read.

    Attributes:
        slots: the workers.
        finished: set when the sidecar is to be stopped.
        http: where it listens.
    """

    def __init__(self, settings: Settings, workers: int, config_path: Path, config_hash: str | None = None) -> None:
        self.settings = settings
        self.config_path = config_path
        self.started = False
        self.draining = False
        self.finished = asyncio.Event()
        self.http: tuple[str, int] | None = None
        self.reloader = Reloader(config_path, config_hash, self._take, lambda: self.settings.reload.watch)
        self.began = time.time()
        self.slots = [Slot(number) for number in range(1, workers + 1)]
        self.shares = share_out([rule.name for rule in settings.rules], workers)
        self._deal()
        self.telemetry = Telemetry(settings, self)
        self.state = JointState(self)
        self._links: dict[str, Link] = {}
        self._loops: LoopCheck = AccountLoops(settings, {})
        self._listener: Listener | None = None
        self._ended: BridgeError | None = None
        self._deciding = asyncio.Lock()  # held by whoever changes the configuration, or starts a worker with it

    # -- what telemetry sees: the workers tell the rest themselves -----------------------------------------------------

    @property
    def seats(self) -> Sequence[RuleSeat]:
        """None: rules are on the workers."""
        return ()

    @property
    def links(self) -> Mapping[str, Link]:
        """None that belongs to a rule."""
        return {}

    @property
    def reloads(self) -> Mapping[str, int]:
        """How many reloads ended in which way."""
        return self.reloader.results

    @property
    def error(self) -> BaseException | None:
        """What ended the sidecar: the first worker's, or a connection's."""
        return next((slot.verdict for slot in self.slots if slot.verdict is not None), self._ended)

    # -- from start to drain -------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start all workers; the rules begin when every one of them was looked at. On an error nothing is left.

        Raises:
            BridgeError: what is wrong, in one or two lines.
        """
        settings = self.settings
        try:
            self.telemetry.start()
            self.state.start()
            if settings.http.address is not None:
                self._listener = Listener(self, self.state, settings.http)
                self.http = await self._listener.start()
            self._links = await open_links(settings, connections_of(settings))
            for link in self._links.values():
                link.on_end(partial(self._connection_ended, link.name))
            self._loops = AccountLoops(settings, self._links)
            self._loops.on_change(self._look_again)
            busy = [slot for slot in self.slots if slot.rules]
            await _first_error(*(self._open(slot, share_of(settings, self.shares, slot.number)) for slot in busy))
            self.started = True
            await self._loops.refuse({rule.name for rule in settings.rules})
            states: Counter[str] = Counter()
            for told in await _first_error(*(self._begin(slot) for slot in busy)):
                states.update(told["states"])
        except Exception:
            await self.stop()
            raise
        for slot in busy:
            self._keep(slot)
        _log.info(
            "sidecar.ready",
            name=settings.name,
            rules=states.total() - states["waiting"] - states["standby"],
            waiting=states["waiting"],
            **({"standby": states["standby"]} if settings.leadership is not None else {}),
            http=f"{self.http[0]}:{self.http[1]}" if self.http else "off",
            workers=len(busy),
        )
        self.reloader.start()

    async def stop(self) -> bool:
        """Have all workers finish and end; whether every rule finished what it had in hand."""
        self.draining = True
        await self.reloader.close()
        await self._loops.close()
        await end_tasks(*(slot.keeper for slot in self.slots))
        # At the same time: whatever takes long, all of it is to be over within the grace period.
        ours = asyncio.gather(close_links(self._links.values()), self.telemetry.stop())
        finished = await asyncio.gather(*(self._end(slot) for slot in self.slots))
        await ours
        await self.state.stop()
        if self._listener is not None:
            await self._listener.stop()
        return all(finished)

    def kill(self) -> None:
        """End all workers at once."""
        for slot in self.slots:
            if slot.process is not None:
                slot.process.kill()

    def drain(self, reason: str) -> None:
        """Ask for the end: whoever runs the sidecar stops it, and rules finish what they have in hand."""
        if not self.draining:
            _log.info("sidecar.draining", reason=reason)
        self.draining = True
        self.finished.set()

    # -- one worker ----------------------------------------------------------------------------------------------------

    async def _open(self, slot: Slot, share: Settings) -> None:
        """Start a worker's process and have it look at its share of the rules.

        Raises:
            BridgeError: what is against them, or in the way; the process may be there.
        """
        process = slot.process = await WorkerProcess.launch(slot.number, partial(self._answer, slot))
        slot.starts += 1
        names = [rule.name for rule in share.rules]
        _log.info("worker.started", worker=slot.number, pid=process.pid, rules=names)
        await process.ask("open", settings=settings_to(share), config_path=str(self.config_path))

    async def _begin(self, slot: Slot) -> Json:
        assert slot.process is not None
        told = await slot.process.ask("begin")
        slot.at_work = True
        return told

    async def _end(self, slot: Slot) -> bool:
        """Drain a worker; whether it finished what it had in hand."""
        await end_tasks(slot.keeper)
        slot.keeper = None
        process = slot.process
        if process is None:
            return True
        code = await process.drained(_DRAIN)
        slot.process, slot.at_work = None, False
        if code and slot.verdict is None:  # else that is what ends it
            _log.error("worker.unfinished", worker=slot.number, exit_code=code)
        return code == 0

    def _keep(self, slot: Slot) -> None:
        slot.keeper = asyncio.create_task(self._keep_at_work(slot))

    async def _keep_at_work(self, slot: Slot) -> None:
        """Start a worker again whenever it ends without a word."""
        again = 0
        while slot.process is not None:
            since = time.monotonic()
            how = await slot.process.ended()
            await slot.process.close()
            slot.process, slot.at_work, slot.last_end = None, False, how
            if slot.verdict is not None:
                return
            again = 0 if time.monotonic() - since > _PROVEN else again
            while slot.process is None:
                pause, again = PAUSES[min(again, len(PAUSES) - 1)], again + 1
                _log.error("worker.ended", worker=slot.number, reason=slot.last_end, again_in=pause)
                await asyncio.sleep(pause)
                # What is being decided about the configuration is decided first.
                async with self._deciding:
                    if not slot.rules:
                        return
                    await self._start_again(slot)
                if slot.verdict is not None:
                    return

    async def _start_again(self, slot: Slot) -> None:
        try:
            await self._open(slot, share_of(self.settings, self.shares, slot.number))
            await self._loops.refuse(set(slot.rules))
            await self._begin(slot)
        except Exception as error:
            if slot.process is not None:
                await slot.process.drained(_DRAIN)
                slot.process = None
            slot.last_end = str(error) or type(error).__name__
            # Whatever is unexpected may be so only once; what was refused for good would be refused again.
            if slot.verdict is None and isinstance(error, BridgeError) and not error.passing:
                slot.verdict = EndedError({"reason": str(error), "exit_code": error.exit_code})
                self.finished.set()
        else:
            _log.info("worker.back", worker=slot.number)

    async def _answer(self, slot: Slot, what: str, given: Json) -> Json:
        """What a worker asks."""
        match what:
            case "loops":
                await self._loops.refuse(set(given["rules"]))
            case "failed":
                slot.verdict = slot.verdict or EndedError(given)
                self.finished.set()
        return {}

    # -- another configuration -----------------------------------------------------------------------------------------

    async def reload(self, asked_by: str) -> ReloadFacts:
        """Read the configuration file again and take it, all or nothing; see `docs/reload.md`.

        Args:
            asked_by: what made it happen, for the log and `/status`.
        """
        return await self.reloader.reload(asked_by)

    async def _take(self, settings: Settings) -> Taken:
        """Have all workers run another configuration from now on.

        Raises:
            BridgeError: what is in the way; the configuration from before goes on everywhere.
        """
        async with self._deciding:
            plan = plan_reload(self.settings, settings)
            if plan.restart:
                raise ConfigError(f"{self.config_path}: {plan.refusal}")
            await self._change_over(settings, plan)
        return Taken("unchanged" if plan.is_empty else "applied", plan.touched)

    async def _change_over(self, settings: Settings, plan: ReloadPlan) -> None:
        opened = await open_links(settings, plan.opened)
        links = {name: opened.get(name) or self._links[name] for name in connections_of(settings)}
        loops = self._loops.following(settings, links)
        shares = share_out([rule.name for rule in settings.rules], len(self.slots), self.shares)
        change = JointChange(self.slots, settings, shares, self._open, self._end)
        try:
            await change.prepare()
            try:
                if plan.touched:
                    await loops.refuse({*plan.changed, *plan.added})
            except BaseException:
                await change.abandon()
                raise
            await change.apply()
        except BaseException:
            await close_links(opened.values())
            raise
        # Decided: whatever happens from here on, this is the configuration.
        left = [link for name, link in self._links.items() if links.get(name) is not link]
        self.settings, self.shares, self._links, self._loops = settings, shares, links, loops
        for name, link in opened.items():
            link.on_end(partial(self._connection_ended, name))
        if plan.logging:
            configure_logs(settings.log)
        await change.finish()
        for slot in self.slots:
            if slot.process is not None and slot.keeper is None:
                slot.at_work = True
                self._keep(slot)
        await close_links(left)

    def _deal(self) -> None:
        for slot in self.slots:
            slot.rules = tuple(name for name, number in self.shares.items() if number == slot.number)

    def _connection_ended(self, name: str, reason: str) -> None:
        if not self.draining:
            self._ended = ConnectionLostError(f"connection '{name}': the server ended it ({reason}): start again")
            self.finished.set()

    async def _look_again(self) -> None:
        try:
            await self._loops.refuse({rule.name for rule in self.settings.rules})
        except RuleRefusedError as error:
            self._ended = error
            self.finished.set()


async def _first_error(*steps: Coroutine[Any, Any, _Answer]) -> list[_Answer]:
    """All answers; on the first error the others are given up."""
    tasks = [asyncio.create_task(step) for step in steps]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await end_tasks(*tasks)
