"""The event loop of one simulated process, in virtual time.

It keeps what asyncio promises: callbacks run in the order in which they became ready. It draws which of them are ready
together: a turn takes a drawn time, in which reads and timers become due that would have been apart. Reads of several
connections come in a drawn order, as from a real selector.
"""

from __future__ import annotations

import asyncio
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from functools import partial
from heapq import heappop, heappush
from typing import Any

from tests.simulation.network import Network, Reachable, SimulatedSocket
from tests.simulation.world import World


class NumberedTask(asyncio.Task[Any]):
    """A task whose place in a set depends on its number, not on its address."""

    def __init__(self, coro: Coroutine[Any, Any, Any], number: int, **options: Any) -> None:
        self.number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self.number


class SidecarLoop(asyncio.AbstractEventLoop):
    """The loop of one process. `failed` is called with the errors that callbacks and tasks leave unhandled."""

    def __init__(self, world: World, network: Network, name: str, failed: Callable[[str], None]) -> None:
        self.name = name
        self.is_dead = False
        self.kill_in: int | None = None  # callbacks
        self.killed: Callable[[], None] = lambda: None
        self.has_read: Callable[[bytes], None] = lambda _: None
        self._world, self._network, self._failed = world, network, failed
        self._ready: deque[events.Handle] = deque()
        self._readable: list[Callable[[], None]] = []
        self._timers: list[tuple[float, int, events.TimerHandle]] = []
        self._numbers = 0  # of timers and tasks: of two timers at one time, the first one comes first
        self._free_at = 0.0  # when the present turn, or a pause, is over
        self._turn_at = float("inf")
        self._in_turn = False
        self.sockets: set[SimulatedSocket] = set()
        self.tasks: list[asyncio.Task[Any]] = []

    def pause(self, seconds: float) -> None:
        self._free_at = max(self._free_at, self._world.now + seconds)

    def kill(self) -> None:
        """End the process: nothing of it runs again, and its connections are closed by the kernel."""
        if self.is_dead:
            return
        self.is_dead = True
        for each in (self._ready, self._readable, self._timers):
            each.clear()
        for task in self.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        for sock in sorted(self.sockets, key=lambda each: each.number):
            sock.close()
        self.killed()

    def readable(self, read: Callable[[], None]) -> None:
        if not self.is_dead:
            self._readable.append(read)
            self._wake(self._world.now)

    def _wake(self, when: float) -> None:
        if self._in_turn or self.is_dead:
            return
        when = max(when, self._free_at)
        if when < self._turn_at:
            self._turn_at = when
            self._world.at(when, self._turn)

    def _turn(self) -> None:
        if self.is_dead or self._world.now < self._turn_at:
            return
        if self._world.now < self._free_at:  # paused since
            self._turn_at = float("inf")
            self._wake(self._free_at)
            return
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            while self._handle_what_is_due():
                pass
        finally:
            events._set_running_loop(before)

    def _handle_what_is_due(self) -> bool:
        """Carry out one turn. Return whether the next one follows at once."""
        world, now = self._world, self._world.now
        self._turn_at, self._in_turn = float("inf"), True
        ready, timers = self._ready, self._timers
        try:
            if self._readable:
                reads, self._readable = self._readable, []
                if len(reads) > 1:
                    world.chance.shuffle(reads)
                ready.extend(events.Handle(read, (), self) for read in reads)
            while timers and timers[0][0] <= now:
                timer = heappop(timers)[2]
                if not timer.cancelled():
                    ready.append(timer)
            for _ in range(len(ready)):
                handle = ready.popleft()
                if handle.cancelled():
                    continue
                handle._run()
                if self.kill_in is not None:
                    self.kill_in -= 1
                    if self.kill_in <= 0:
                        self.kill()
                if self.is_dead:
                    return False
        finally:
            self._in_turn = False
        self._free_at = max(self._free_at, now + world.moment(0.00002, rarely=0.002, longest=0.05))
        while timers and timers[0][2].cancelled():
            heappop(timers)
        if not (ready or self._readable or timers):
            return False
        when = max(now if ready or self._readable else timers[0][0], self._free_at)
        if world.advance(when):
            return True
        self._wake(when)
        return False

    def time(self) -> float:
        return self._world.now

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    get_debug = is_closed

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> events.Handle:  # type: ignore[override]
        handle = events.Handle(callback, args, self, context)
        if not self.is_dead:
            self._ready.append(handle)
            if not self._in_turn:
                self._wake(self._world.now)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> events.TimerHandle:
        return self.call_at(self._world.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> events.TimerHandle:
        timer = events.TimerHandle(when, callback, args, self, context)
        if not self.is_dead:
            self._numbers += 1
            heappush(self._timers, (when, self._numbers, timer))
            self._wake(when)
        return timer

    def _timer_handle_cancelled(self, timer: events.TimerHandle) -> None:
        """Do nothing: it is left out when it would be the next one."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:  # type: ignore[override]
        self._numbers += 1
        task = NumberedTask(coro, self._numbers, loop=self, **options)
        if len(self.tasks) > 256:
            self.tasks = [each for each in self.tasks if not each.done()]
        self.tasks.append(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.is_dead:
            self._failed(f"{self.name}: {context.get('message')}: {context.get('exception')!r}")

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Run the function at once. Its result arrives later."""
        done = self.create_future()
        try:
            settle = partial(done.set_result, func(*args))
        except Exception as error:
            settle = partial(done.set_exception, error)
        self.call_later(self._world.moment(0.0005), lambda: done.done() or settle())
        return done

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> list[Any]:
        return [(2, 1, 6, "", (host, port))]

    async def sock_connect(self, sock: Any, address: Any) -> None:
        connected = self.create_future()
        self._network.connect(sock, Reachable(*address), self, connected)
        self.sockets.add(sock)
        await connected

    async def create_connection(self, factory: Any, *_: Any, sock: Any = None, **__: Any) -> Any:  # type: ignore[override]
        protocol = factory()
        return sock.begin(protocol), protocol
