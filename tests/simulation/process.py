"""One replica of the sidecar as a process, which is restarted whenever it ends, as by an orchestrator."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from nats_bridge.app.sidecar import Sidecar
from nats_bridge.client.tasks import end_tasks
from nats_bridge.errors import BridgeError
from tests.simulation.sidecar_loop import SidecarLoop

if TYPE_CHECKING:
    from tests.simulation.scenario import Scenario

_GRACE = 10.0  # seconds until a replaced process is killed
_RESTART = 0.5  # seconds between the end of a process and the next one's first step


class SidecarProcess:
    """One replica of the sidecar as a process, which is restarted whenever it ends, as by an orchestrator."""

    def __init__(self, scenario: Scenario, number: int) -> None:
        self.number, self.pid = number, 0
        self.loop: SidecarLoop | None = None
        self.sidecar: Sidecar | None = None
        self.is_asked_to_stop = self.stays_away = False
        self._scenario = scenario

    def start(self) -> None:
        scenario = self._scenario
        self.pid += 1
        self.is_asked_to_stop = False
        loop = self.loop = SidecarLoop(  # type: ignore[abstract]
            scenario.world, scenario.network, f"sidecar{self.number}", scenario.judging.violations.append
        )
        loop.killed = self._killed
        if len(scenario.sidecars) > 1:
            loop.has_read = partial(scenario.judging.has_read, self.id)
        loop.call_soon(lambda: loop.create_task(self._run(loop), name="main").add_done_callback(self._main_is_done))

    def _main_is_done(self, main: asyncio.Task[None]) -> None:
        if error := main.exception():
            self._scenario.judging.violations.append(f"the sidecar crashed: {error!r}")

    async def _run(self, loop: SidecarLoop) -> None:
        """As `nats_bridge.app.process.run` does it."""
        sidecar = self.sidecar = Sidecar(self._scenario.settings)
        pid = self.id
        starting = asyncio.create_task(sidecar.start())
        waiting = asyncio.create_task(sidecar.finished.wait())
        code, error = 0, None
        try:
            await asyncio.wait({starting, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                await starting
                await waiting
            else:
                await end_tasks(starting)
            code = 0 if await sidecar.stop() else 1
            if sidecar.ended_by is not None:
                raise sidecar.ended_by
        except BridgeError as raised:
            code, error = raised.exit_code, str(raised)
        finally:
            await end_tasks(waiting)
            await asyncio.sleep(0.01)  # what is cancelled ends with the next turns
        self._ended(loop, sidecar, pid, code, error)

    def _ended(self, loop: SidecarLoop, sidecar: Sidecar, pid: int, code: int, error: str | None) -> None:
        scenario, is_replaced = self._scenario, self.loop is not loop
        record, violations = scenario.judging.record, scenario.judging.violations
        expected = "asked to stop" if self.is_asked_to_stop or is_replaced else ""
        last = {"counters": counters_of(sidecar), "error": error or ""}
        record("sidecar", replica=self.number, pid=pid, what="ended", code=code, expected=expected, last=last)
        left = [task for task in loop.tasks if not task.done() and task.get_name() != "main"]
        violations.extend(f"left after the stop: {task.get_coro()!r}" for task in left)
        violations.extend(f"left after the stop: connection {sock.number}" for sock in loop.sockets)
        loop.killed = lambda: None
        loop.kill()
        if is_replaced:
            record("fault", number=f"stop {pid}", kind="sidecar stopped", phase="end")
            return
        self.sidecar = None
        if not self.stays_away:
            scenario.world.after(_RESTART * (1 + scenario.world.chance.random()), self.start)

    def replace(self, before: SidecarLoop | None) -> None:
        """Start the next process, unless it has started since. The one before may still run."""
        if before is None or self.loop is not before or self.sidecar is None or self.stays_away:
            return
        pid = self.id
        self._scenario.judging.record("fault", number=f"stop {pid}", kind="sidecar stopped", phase="begin")
        if len(self._scenario.sidecars) == 1:  # without leases, both may publish what this one has not confirmed
            self._scenario.judging.overlaps.append(self._scenario.world.now)
        before.killed = partial(self._overdue, pid, before, self.sidecar)
        self._scenario.world.after(_GRACE, before.kill)
        self.start()

    def _overdue(self, pid: int, loop: SidecarLoop, sidecar: Sidecar) -> None:
        """An orchestrator kills a process that does not end."""
        self._scenario.dead += sidecar, loop, loop.tasks
        self._scenario.judging.record("sidecar", replica=self.number, pid=pid, what="killed")

    def stop(self) -> None:
        if self.sidecar is not None and self.loop is not None and not self.is_asked_to_stop:
            self.is_asked_to_stop = True
            self.loop.readable(partial(self.sidecar.drain, "SIGTERM"))

    def kill(self, callbacks: int) -> None:
        """SIGKILL, after this many more callbacks."""
        if self.loop is not None:
            self.loop.kill_in = callbacks

    def _killed(self) -> None:
        scenario = self._scenario
        scenario.judging.look(self)
        scenario.judging.record("sidecar", replica=self.number, pid=self.id, what="killed")
        scenario.dead += self.sidecar, self.loop, self.loop.tasks if self.loop is not None else ()
        self.sidecar = None
        if not self.stays_away:
            scenario.world.after(_RESTART * (1 + scenario.world.chance.random()), self.start)

    @property
    def id(self) -> int:
        return self.pid * 10 + self.number

    @property
    def is_ready(self) -> bool:
        sidecar = self.sidecar
        if sidecar is None or not sidecar.started:
            return False
        return all(each.ready or each.state == "standby" for each in sidecar.supervisors)


def counters_of(sidecar: Sidecar | None) -> dict[str, dict[str, int]]:
    return {each.rule.name: each.counters() for each in sidecar.supervisors} if sidecar else {}
