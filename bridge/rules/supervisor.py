"""The supervisor of one rule, for as long as the rule is in the configuration.

Theory of operation. A run does a rule's work once, from its start to its end. A supervisor starts runs, one at a time:
when the rule's streams exist, when this sidecar leads the rule (see `bridge.rules.leadership`), and again after the
lead was lost or the configuration changed. Counters and measures belong to the supervisor, so they continue over runs.

A task starts the run and then watches the term. `stop` ends that task first, and then the run, so that
only one of them acts on the run.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import structlog

from nats_bridge.bridge.client.tasks import end_tasks
from nats_bridge.bridge.client.write_fence import ALWAYS_OPEN, WriteFence
from nats_bridge.bridge.consuming.missing_streams import appeared
from nats_bridge.bridge.errors import BridgeError, StreamMissingError
from nats_bridge.bridge.kinds.registry import kind_of
from nats_bridge.bridge.observability.rule_metrics import RuleMetrics
from nats_bridge.bridge.rules.context import RuleContext
from nats_bridge.bridge.rules.leadership.term import Leadership, Term
from nats_bridge.bridge.rules.run import RuleRun
from nats_bridge.bridge.settings import Rule, Settings

if TYPE_CHECKING:
    from nats_bridge.bridge.client.connection import Connection
    from nats_bridge.bridge.observability.telemetry.tracing import RuleTracing
    from nats_bridge.bridge.rules.loops.account_graph import AccountGraph


SupervisorState: TypeAlias = Literal["waiting", "standby", "starting", "ready", "draining", "stopped", "failed"]
"""`waiting`: a stream that the rule needs does not exist; `standby`: another replica leads the rule."""

_log = structlog.get_logger("bridge.supervisor")

_DRAIN = 22.0  # seconds for a rule to finish; with the rest, within Kubernetes' default grace period of 30
_LEAVE = 3.0  # seconds for leaving what did not finish
_PAUSES = (0.25, 0.5, 1.0, 2.0, 5.0)  # seconds before a start is retried that failed because a server was unreachable


@dataclass(frozen=True, slots=True)
class Assembly:
    """A configuration with what its rules need to run.

    Attributes:
        settings: the configuration.
        connections: its open connections by name.
        loops: refuses rules that would loop.
        tracing_of: what makes a rule's spans, None for none.
    """

    settings: Settings
    connections: Mapping[str, Connection]
    loops: AccountGraph
    tracing_of: Callable[[Rule], RuleTracing | None] = lambda _: None

    def make_run(
        self,
        rule: Rule,
        failed: Callable[[Any], None] = lambda _: None,
        fence: WriteFence = ALWAYS_OPEN,
        metrics: RuleMetrics | None = None,
    ) -> RuleRun:
        """Return a run of one of the rules; it does nothing before its `check`.

        Args:
            rule: the rule.
            failed, fence, metrics: see `RuleContext`; left out where the run is only checked.
        """
        settings = self.settings
        context = RuleContext(
            settings.name, settings.dialect_of(rule), failed, fence, metrics or RuleMetrics(), self.tracing_of(rule)
        )
        return kind_of(rule).run(rule, settings, self.connections, context)


class RuleSupervisor:
    """The supervisor of one rule.

    Args:
        rule: the rule.
        assembly: the configuration that it belongs to.
        leadership: decides when this sidecar leads the rule.
        failed: called with the supervisor when its rule cannot continue; `error` says why.

    Attributes:
        rule: the rule as it is now.
        run: the present run, or the last one; None before the first one.
        metrics: the rule's metrics, over all runs.
        error: why it cannot continue, None while it can.
    """

    def __init__(
        self, rule: Rule, assembly: Assembly, leadership: Leadership, failed: Callable[[RuleSupervisor], None]
    ) -> None:
        self.rule = rule
        self.run: RuleRun | None = None
        self.metrics = RuleMetrics()
        self.error: BaseException | None = None
        self._assembly = assembly
        self._leadership = leadership
        self._failed = failed
        self._phase: SupervisorState = "starting"
        self._prepared: RuleRun | None = None  # checked, to be started
        self._missing: StreamMissingError | None = None
        self._looks_for_loops = False
        self._term: Term | None = None
        self._task: asyncio.Task[None] | None = None
        self._begun: asyncio.Future[None] | None = None
        self._is_running = False  # whether the run must be ended
        self._ending: asyncio.Task[None] | None = None
        self._in_doubt: asyncio.Task[None] | None = None  # whether a failure is the rule's, or another leader's doing
        self._past: Counter[str] = Counter()  # counted by earlier runs
        self._log = _log.bind(rule=rule.name)

    # -- status ------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> SupervisorState:
        """The rule's state."""
        return self.run.state if self.run is not None and self._phase == "ready" else self._phase

    @property
    def ready(self) -> bool:
        """Whether the rule runs at this moment, or is on standby for another replica that runs it."""
        if self._phase == "standby":
            return True
        return self._phase == "ready" and self.run is not None and self.run.ready

    @property
    def leader(self) -> bool | None:
        """Whether this sidecar leads the rule, and may write; None where there are no replicas.

        If it cannot renew its lease, this is False before any other replica can lead.
        """
        if not self._leadership.shared:
            return None
        return self._term is not None and not self._term.lost.is_set() and self._term.fence.is_open

    @property
    def waiting_for(self) -> str | None:
        """The rule's obstacle, in words; None where nothing outside blocks it."""
        match self._phase:
            case "waiting":
                return str(self._missing)
            case "standby":
                return "the lead, which another replica has"
            case "ready" | "draining" if self.run is not None:
                return self.run.waiting_for
            case "starting":
                beginning = self.run.waiting_for if self.run is not None and self._is_running else None
                return beginning or "its servers to answer what its start asks"
            case _:
                return None

    @property
    def has_work(self) -> bool:
        """Whether it holds messages that it received and has not published, or that are not confirmed."""
        return self._is_running and self.run is not None and self.run.has_work

    def counters(self) -> dict[str, int]:
        """The counters of all runs together; none ever decreases."""
        total = Counter(self._past)
        if self.run is not None:
            total.update(self.run.counters.as_dict())
        return dict(total)

    def status(self) -> dict[str, Any]:
        """The status of the run; empty before the first one."""
        return self.run.status() if self.run is not None else {}

    # -- life --------------------------------------------------------------------------------------------------------

    async def check(self) -> None:
        """Check the servers, before `start`; `start` then waits for a missing stream.

        Raises:
            BridgeError: what is against the rule.
        """
        self._missing = None
        run = self._new_run()
        if await self._checked(run):
            self._prepared = run

    async def start(self) -> None:
        """Start the rule; return when it runs, waits for a stream, or is on standby. After `check`.

        Raises:
            BridgeError: what is against the rule.
        """
        self.resume()
        self._begun = asyncio.get_running_loop().create_future()
        await self._begun

    def resume(self) -> None:
        """Restart the rule after `halt`, as soon as its servers allow it, without waiting for that."""
        self.error = None
        self._begun = None
        self._task = asyncio.create_task(self._live())

    async def halt(self) -> bool:
        """Drain the run and keep the lead, for a changed rule; return whether everything in flight was finished."""
        failed = self._phase == "failed"
        self._phase = "draining"
        await end_tasks(self._task)
        if self._begun is not None:
            self._begun.cancel()
        self._task = self._prepared = self._missing = None
        finished = await self._end_run()
        self._phase = "failed" if failed else "stopped"
        return finished

    async def stop(self) -> bool:
        """Drain the run and release the lead; return whether everything in flight was finished."""
        finished = await self.halt()
        await self._end_term(finished=finished)
        return finished

    def take(self, rule: Rule, assembly: Assembly) -> None:
        """Apply another configuration; a rule that changes with it must be halted."""
        self.rule = rule
        self._assembly = assembly

    # -- the way to work ---------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        try:
            while True:
                await self._wait_for_streams()
                term = await self._lead()
                if not await self._work(term):
                    self.error = None  # of a start that is over
                    continue
                if self.error is not None:  # raised by a message during the start
                    self._ended_by(self.error)
                    return
                self._phase = "ready"
                self._has_begun()
                await _first_of(term.lost.wait(), term.surplus.wait())
                if not term.lost.is_set() and self.error is None:
                    self._phase = "draining"
                    await self._end_term(finished=await self._end_run())
                    self.error = None  # of the drain: the next leader meets what is against the rule
                    continue
                await term.lost.wait()
                if self.error is not None:
                    return
                self._log.warning("rule.lead_lost", meaning="another replica may do the rule's work by now")
                self._phase = "standby"
                await self._end_run()
        except Exception as error:
            self._start_failed(error)

    async def _wait_for_streams(self) -> None:
        if self._missing is None:
            return
        self._phase = "waiting"
        await self._end_term()
        self._has_begun()
        await appeared(self._assembly.connections[self._missing.connection], self._missing.stream)
        self._missing = None
        # A newly created stream can complete a loop.
        self._looks_for_loops = True

    async def _lead(self) -> Term:
        if self._term is None or self._term.lost.is_set():
            self._term = None
            if self._leadership.shared:
                self._phase = "standby"
                self._has_begun()
            self._term = await self._leadership.lead(self.rule)
        return self._term

    async def _work(self, term: Term) -> bool:
        """Start a run; return False if a stream is missing, or the term is over already."""
        self._phase = "starting"
        pauses = iter(_PAUSES)
        while not term.lost.is_set():
            try:
                return await self._start_run(term)
            except BridgeError as error:
                await self._end_run()
                if not await _is_still_led(term):
                    break  # the new leader may be what was in the way
                if not error.passing or self._is_awaited:
                    raise
                if self._leadership.shared:
                    await self._end_term()  # another replica may reach the server that this one cannot
                self.error = None
                pause = next(pauses, _PAUSES[-1])
                self._log.warning("rule.start_delayed", reason=str(error), again_in=pause)
                await asyncio.sleep(pause)
                if self._leadership.shared:
                    return False
        return False

    async def _start_run(self, term: Term) -> bool:
        run, self._prepared = self._prepared, None
        if run is None or self._leadership.shared:
            run = self._new_run(term.fence)
            if not await self._checked(run):
                return False
        if self._looks_for_loops:
            await self._assembly.loops.refuse({self.rule.name})
            self._looks_for_loops = False
        if self.run is not None:
            self._past.update(self.run.counters.as_dict())
        self.run, self._is_running = run, True
        starting = asyncio.create_task(run.start())  # which may read a long history
        try:
            await _first_of(starting, term.lost.wait())
            if starting.done():
                await starting
                return True
        finally:
            await end_tasks(starting)
        await self._end_run()
        return False

    async def _checked(self, run: RuleRun) -> bool:
        """Check the run; return False if a stream is missing."""
        try:
            await run.check()
        except StreamMissingError as error:
            self._missing = error
            self._phase = "waiting"
            self._log.warning("rule.waiting", reason=str(error), meaning="starts when it appears")
            return False
        return True

    def _new_run(self, fence: WriteFence = ALWAYS_OPEN) -> RuleRun:
        return self._assembly.make_run(self.rule, self._run_failed, fence, self.metrics)

    # -- the way out -------------------------------------------------------------------------------------------------

    async def _end_run(self) -> bool:
        """Drain the run, if there is one; return whether everything in flight was finished."""
        await end_tasks(self._in_doubt)  # the end of a run decides nothing for it
        run = self.run
        if run is None or not self._is_running:
            return True
        if self._term is not None and self._term.lost.is_set():
            # Of a drain whose caller no longer waits.
            await end_tasks(self._ending)
            self._ending = None
            await run.end_at_once()
            finished = False
        else:
            finished = await self._drain(run)
        self._is_running = False  # only here: where this was cancelled, it is done again
        self.metrics.ended()
        return finished

    async def _drain(self, run: RuleRun) -> bool:
        if self._ending is None:
            self._ending = asyncio.create_task(run.stop())
        lost = [self._term.lost.wait()] if self._term is not None else []
        await _first_of(self._ending, *lost, within=_DRAIN)
        ending, self._ending = self._ending, None
        if self._term is not None and self._term.lost.is_set() and not ending.done():
            await end_tasks(ending)
            await run.end_at_once()
            return False
        if ending.done():
            if error := ending.exception():
                self._log.error("rule.drain_failed", reason=str(error) or type(error).__name__)
            return error is None
        self._log.error("rule.drain_timeout", seconds=_DRAIN)
        await end_tasks(ending)
        try:
            async with asyncio.timeout(_LEAVE):
                await run.abandon()
        except TimeoutError:
            await run.end_at_once()
        return False

    async def _end_term(self, *, finished: bool = True) -> None:
        term, self._term = self._term, None
        if term is not None:
            await term.end(finished=finished)

    # -- reports of the run ------------------------------------------------------------------------------------------

    @property
    def _is_awaited(self) -> bool:
        """Whether a caller still waits for the result of the start."""
        return self._begun is not None and not self._begun.done()

    def _has_begun(self) -> None:
        if self._begun is not None and not self._begun.done():
            self._begun.set_result(None)

    def _run_failed(self, run: RuleRun) -> None:
        """Handle a run that cannot continue; the code that is starting or draining it reports the failure."""
        if run is not self.run or run.error is None or self.error is not None:
            return
        if (term := self._term) is not None and not term.fence.is_open:
            # Paused or cut off for so long that another replica may lead, which can be what was in its way.
            self._in_doubt = asyncio.create_task(self._fail_if_still_leading(run, term))
            return
        self.error = run.error
        if self._phase not in ("starting", "draining"):
            self._phase = "failed"
            self._failed(self)

    async def _fail_if_still_leading(self, run: RuleRun, term: Term) -> None:
        if await _is_still_led(term):
            self._run_failed(run)

    def _start_failed(self, error: BaseException) -> None:
        """Fail the caller that waits for the start, otherwise handle the error as a failure of the run."""
        if self._is_awaited and self._begun is not None:
            self.error, self._phase = error, "failed"
            self._begun.set_exception(error)
            return
        if self.error is None:  # not reported yet
            self._log.error("rule.failed", reason=str(error) or type(error).__name__)
        self._ended_by(error)

    def _ended_by(self, error: BaseException) -> None:
        self.error, self._phase = error, "failed"
        self._has_begun()
        self._failed(self)


async def _is_still_led(term: Term) -> bool:
    """Wait until it is known whether the term continues, if it may be over."""
    await _first_of(term.lost.wait(), term.fence.opened())
    return not term.lost.is_set()


async def _first_of(*awaited: Coroutine[Any, Any, object] | asyncio.Task[None], within: float | None = None) -> None:
    """Wait until one of them is done, or for so many seconds; cancel the coroutines, not the tasks."""
    tasks = [each for each in awaited if isinstance(each, asyncio.Task)]
    coroutines = [asyncio.create_task(each) for each in awaited if not isinstance(each, asyncio.Task)]
    try:
        await asyncio.wait([*tasks, *coroutines], timeout=within, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_tasks(*coroutines)
