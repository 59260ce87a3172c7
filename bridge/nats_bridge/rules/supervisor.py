"""The supervisor of one rule, for as long as the rule is in the configuration.

Theory of operation. A run does a rule's work once, from its start to its end. A supervisor starts runs, one at a
time: when the rule's streams exist, when this sidecar leads the rule (see `nats_bridge.rules.leadership`), and again
after the lead was lost or the configuration changed. Counters and measures belong to the supervisor, so they continue
over runs.

`Supervision` decides which state follows. A task performs the action of each state and reports the result. `halt` and
`stop` end that task first, and then the run, so that only one of them acts on the run.

A run that fails ends, and its lead with it, so that another replica may try. The rule is then `failed` for a pause that
grows with each failure in a row, and is started again: its servers may have changed in the meantime. With `fail_fast`
it stays failed, and the sidecar ends.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import structlog

from nats_bridge.client.consumer_names import RULE
from nats_bridge.client.tasks import end_tasks, first_of, happens
from nats_bridge.consuming.missing_streams import appeared
from nats_bridge.errors import BridgeError, StreamMissingError
from nats_bridge.observability.rule_metrics import RuleMetrics
from nats_bridge.rules.context import Assembly
from nats_bridge.rules.leadership.term import Leadership, Term
from nats_bridge.rules.open_run import OpenRun
from nats_bridge.rules.run import RuleRun
from nats_bridge.rules.supervision import (
    Failure,
    Supervision,
    SupervisionAction,
    SupervisionEvent,
    SupervisionReport,
    SupervisorState,
)
from nats_bridge.settings import Rule

_log = structlog.get_logger("bridge.supervisor")


class RuleSupervisor:
    """The supervisor of one rule.

    Args:
        assembly: the configuration that it belongs to.
        leadership: decides when this sidecar leads the rule.
        failed: called with the supervisor when its rule has failed; `failure` has the reason.

    Attributes:
        rule: the rule as it is now.
        metrics: the rule's metrics, over all runs.
        tried: set when the first start has succeeded or failed, or waits.
    """

    def __init__(
        self, rule: Rule, assembly: Assembly, leadership: Leadership, failed: Callable[[RuleSupervisor], None]
    ) -> None:
        self.rule = rule
        self.metrics = RuleMetrics()
        self.tried = asyncio.Event()
        self._assembly = assembly
        self._leadership = leadership
        self._failed = failed
        self._supervision = Supervision()
        self._perform: dict[SupervisionAction, Callable[[], Coroutine[Any, Any, None]]] = {
            "check": self._check_when_connected,
            "pause": self._pause,
            "await_stream": self._await_stream,
            "keep_start": self._stand_for_lead,
            "await_lead": self._await_lead,
            "start_run": self._start_run,
            "leave_and_pause": self._leave_and_pause,
            "watch_run": self._watch_run,
            "cut_run": self._cut_run,
            "hand_over": self._hand_over,
            "recover": self._recover,
        }
        self._task: asyncio.Task[None] | None = None
        self._begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # or failed, for `start`
        self._hurried = asyncio.Event()
        self._checked: RuleRun | None = None  # the next run, if it is checked already
        self._last: OpenRun | None = None  # the present run, or the last one
        self._term = _no_term()
        self._absent_since_ns: int | None = None
        self._past: Counter[str] = Counter()  # counted by earlier runs
        self._log = _log.bind(rule=rule.name)

    # -- status ------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> SupervisorState:
        """The rule's state."""
        shown = self._supervision.shown
        return self._last.run.state if self._last is not None and shown == "ready" else shown

    @property
    def run(self) -> RuleRun | None:
        """The present run, or the last one; None before the first one."""
        return self._last.run if self._last is not None else None

    @property
    def term(self) -> Term:
        """The term in which the rule runs; a lost one if this sidecar does not lead the rule."""
        return self._term

    @property
    def failure(self) -> Failure | None:
        """The reason why the rule does not run, kept while it is restarted; None if there is none."""
        return self._supervision.failure

    @property
    def error(self) -> BaseException | None:
        """Why the rule does not run."""
        return self.failure.error if self.failure is not None else None

    @property
    def ready(self) -> bool:
        """Whether the rule runs and may write at this moment, or is on standby for another replica that leads it."""
        if self._supervision.shown == "standby":
            return self._leadership.is_led(self.rule.name)
        may_write = self._term.fence.is_open
        return may_write and self._supervision.shown == "ready" and self.run is not None and self.run.ready

    @property
    def leader(self) -> bool | None:
        """Whether this sidecar leads the rule and may write; None without replicas.

        If it cannot renew its lease, this is False before any other replica can lead.
        """
        if not self._leadership.shared:
            return None
        return not self._term.lost.is_set() and self._term.fence.is_open

    @property
    def waiting_for(self) -> str | None:
        """The rule's obstacle, as a phrase; None if nothing outside blocks it."""
        match self._supervision.shown:
            case "waiting":
                return str(self._supervision.absent.error)
            case "standby":
                holder = "another replica" if self.ready else "no replica"
                return f"the lead, which {holder} has at this moment"
            case "ready" | "draining" if self.run is not None:
                return self.run.waiting_for
            case "starting":
                run = self._open_run
                away = run.run.waiting_for if run is not None else self._connection_away
                return away or f"its servers to answer what its start asks{self._obstacle}"
            case _:
                return None

    @property
    def _connection_away(self) -> str | None:
        connections = self._assembly.connections
        away = (name for name in self.rule.connections if not connections[name].client.is_connected)
        return next((f"connection '{name}'" for name in away), None)

    @property
    def _obstacle(self) -> str:
        obstacle = self._supervision.attempt.obstacle
        return f" ({obstacle})" if obstacle else ""

    @property
    def _open_run(self) -> OpenRun | None:
        return self._last if self._last is not None and not self._last.ended else None

    def counters(self) -> dict[str, int]:
        """Return the counters, summed over all runs. They never decrease."""
        total = Counter(self._past)
        if self.run is not None:
            total.update(self.run.counters.as_dict())
        return dict(total)

    def status(self) -> dict[str, Any]:
        """Return the status of the run; empty before the first one."""
        return self.run.status() if self.run is not None else {}

    # -- life --------------------------------------------------------------------------------------------------------

    async def check(self) -> None:
        """Check the servers, before `start`, which waits for a missing stream.

        Raises:
            BridgeError: the rule cannot run.
        """
        run = self._new_run()
        if (missing := await self._missing_for(run)) is not None:
            self._report(self._supervision.missing(missing))
            return
        self._checked = run
        self._happened("done")

    async def start(self) -> None:
        """Start the rule, after `check`.

        Return when it runs, waits for a stream, or is on standby. It is not restarted.

        Raises:
            BridgeError: the rule cannot run.
        """
        self._resume(awaited=True)
        try:
            await self._begun
        finally:
            self._supervision.awaited = False  # also if this was cancelled

    def resume(self) -> None:
        """Start the rule as soon as its servers allow it, also after `halt`, without waiting for that."""
        self._resume(awaited=False)

    def _resume(self, *, awaited: bool) -> None:
        self._begun = asyncio.get_running_loop().create_future()
        self._report(self._supervision.resume(awaited=awaited))
        self._task = asyncio.create_task(self._live())

    async def halt(self) -> bool:
        """Drain the run and keep the lead, for a changed rule. Return whether everything in flight was finished."""
        self._happened("halt")
        await end_tasks(self._task)
        self._begun.cancel()
        self._checked = None
        finished = await self._end_run()
        self._happened("halted")
        return finished

    async def stop(self) -> bool:
        """Drain the run and release the lead. Return whether everything in flight was finished."""
        finished = await self.halt()
        await self._end_term(finished=finished)
        return finished

    def hurry(self) -> None:
        """Restart a failed rule now, because someone may have repaired the cause."""
        self._hurried.set()

    def look_for_loops(self) -> None:
        """Refuse to start while the rule takes part in a loop."""
        self._supervision.may_loop = True

    def refuse(self, error: BridgeError) -> None:
        """Fail a running rule, for a reason that its run cannot see."""
        self._supervision.may_loop = True
        opened = self._open_run
        if self._supervision.shown in ("starting", "ready") and not (opened is not None and opened.failed.done()):
            self._log.error("rule.failed", reason=str(error))
            if opened is not None:
                opened.fail(error)

    def take(self, rule: Rule, assembly: Assembly) -> None:
        """Apply another configuration. A rule that changes with it must be halted."""
        self.rule = rule
        self._assembly = assembly

    # -- the actions of the states -----------------------------------------------------------------------------------

    async def _live(self) -> None:
        RULE.set(self.rule.name)
        while (action := self._supervision.action) != "none":
            try:
                await self._perform[action]()
            except Exception as error:
                self._prevented(error)

    async def _check_when_connected(self) -> None:
        """Check the servers before the rule asks for the lead, when all its connections are up."""
        if self._connection_away is not None:
            self.tried.set()
        for name in self.rule.connections:
            await self._assembly.connections[name].connected()
        await self.check()

    async def _pause(self) -> None:
        await asyncio.sleep(self._supervision.pause.seconds)
        self._happened("done")

    async def _leave_and_pause(self) -> None:
        await self._end_term()  # another replica may reach the server that this one cannot
        await self._pause()

    async def _await_stream(self) -> None:
        await self._end_term()
        missing = self._supervision.absent.error
        await appeared(self._assembly.connections[missing.connection], missing.stream)
        self._happened("done")

    async def _stand_for_lead(self) -> None:
        if self._term.lost.is_set():
            if self._leadership.shared:
                if not self._supervision.start_kept:
                    await self._keep_start()
                self._happened("done")
                return
            self._term = await self._leadership.lead(self.rule)
        self._happened("led")

    async def _keep_start(self) -> None:
        """Store where a rule without a position begins, before the wait for the lead, which can take long."""
        try:
            run = self._checked or self._new_run()
            if run is self._checked or await self._missing_for(run) is None:
                if run.begins_at_end and not await self._leadership.has_position(self.rule.name):
                    await run.keep_start()
                self._supervision.start_kept = True
        except BridgeError as error:
            if not error.passing:
                raise
            meaning = "if it has no position yet, the replica that leads it first decides where it begins"
            self._log.warning("rule.start_not_kept", reason=str(error), meaning=meaning)

    async def _await_lead(self) -> None:
        self._term = await self._leadership.lead(self.rule)
        self._happened("done")

    async def _start_run(self) -> None:
        term = self._term
        if term.lost.is_set():
            self._happened("lost")
            return
        try:
            run = await self._next_run(term)
            if run is None:
                return
            opened = self._open(run, term)
            led = await opened.start()
            if led:
                self._absent_since_ns = None  # a later run must not read the stream from its beginning again
        except BridgeError:
            await self._end_run()
            if await _is_still_led(term):
                raise
            self._happened("lost")  # the new leader may have been the cause
            return
        if led and not opened.failed.done():
            self._happened("done")
        elif led and await _is_still_led(term):
            self._work_failed(opened.failed.result())  # by a message during the start
        else:
            await self._end_run()
            self._happened("lost")

    async def _next_run(self, term: Term) -> RuleRun | None:
        """Return a checked run; None if a stream is missing, which the state then records."""
        run, self._checked = self._checked, None
        if run is None or self._leadership.shared:
            run = self._new_run(term)
            if (missing := await self._missing_for(run)) is not None:
                self._report(self._supervision.missing(missing))
                return None
        if self._supervision.may_loop:
            await self._assembly.loops.refuse({self.rule.name})
            self._supervision.may_loop = False
        return run

    def _open(self, run: RuleRun, term: Term) -> OpenRun:
        if self.run is not None:
            self._past.update(self.run.counters.as_dict())
        self._last = OpenRun(run, term, self.rule.name)
        return self._last

    async def _watch_run(self) -> None:
        opened, term = self._last, self._term
        assert opened is not None
        await first_of(term.lost.wait(), term.surplus.wait(), opened.failed)
        # While the fence is closed, another replica may already lead, and may have caused the failure.
        fails = opened.failed.done() and await _is_still_led(term)
        if term.lost.is_set():
            self._log.warning("rule.lead_lost", meaning="another replica may do the rule's work by now")
            self._happened("lost")
        elif fails:
            self._work_failed(opened.failed.result())
        else:
            self._happened("surplus")

    async def _cut_run(self) -> None:
        await self._end_run()
        self._happened("done")

    async def _hand_over(self) -> None:
        await self._end_term(finished=await self._end_run())
        # An error in the drain does not count, because the next leader will see it.
        self._happened("done")

    async def _recover(self) -> None:
        await self._end_term(finished=await self._end_run())
        until = self._supervision.pause.until
        await happens(self._hurried, within=max(until - asyncio.get_running_loop().time(), 0.0))
        self._happened("done")

    # -- runs and terms ----------------------------------------------------------------------------------------------

    def _new_run(self, term: Term | None = None) -> RuleRun:
        return self._assembly.make_run(self.rule, self._run_failed, term, self.metrics, self._absent_since_ns)

    async def _missing_for(self, run: RuleRun) -> StreamMissingError | None:
        """Check a run; return the error if it needs a stream that does not exist."""
        try:
            await run.check()
        except StreamMissingError as error:
            self._absent_since_ns = self._absent_since_ns or time.time_ns()
            self._log.warning("rule.waiting", reason=str(error), meaning="starts when it appears")
            return error
        return None

    def _run_failed(self, run: RuleRun) -> None:
        opened = self._open_run
        if opened is not None and opened.run is run and run.error is not None:
            opened.fail(run.error)

    async def _end_run(self) -> bool:
        """End the run, if one is open. Return whether everything in flight was finished."""
        if (opened := self._open_run) is None:
            return True
        finished = await opened.end()
        self.metrics.ended()
        return finished

    async def _end_term(self, *, finished: bool = True) -> None:
        term, self._term = self._term, _no_term()
        await term.end(finished=finished)

    # -- events ------------------------------------------------------------------------------------------------------

    def _happened(self, event: SupervisionEvent) -> None:
        self._report(self._supervision.happened(event, asyncio.get_running_loop().time()))

    def _prevented(self, error: Exception) -> None:
        """Handle an error of an action."""
        at, clock = asyncio.get_running_loop().time(), datetime.now(UTC)
        report = self._supervision.prevented(error, at, clock, fail_fast=self._assembly.settings.fail_fast)
        if report == "failed":
            trace = None if isinstance(error, BridgeError) else error
            self._log.error("rule.failed", reason=str(error) or type(error).__name__, exc_info=trace)
        self._report(report)

    def _work_failed(self, error: BaseException) -> None:
        at, clock = asyncio.get_running_loop().time(), datetime.now(UTC)
        self._report(self._supervision.failed(error, at, clock, fail_fast=self._assembly.settings.fail_fast))

    def _report(self, report: SupervisionReport) -> None:
        if report in ("begun", "delayed", "failed"):
            self.tried.set()
        if report == "begun" and not self._begun.done():
            self._begun.set_result(None)
        elif report == "delayed":
            pause = self._supervision.pause
            self._log.warning("rule.start_delayed", reason=pause.attempt.obstacle, again_in=pause.seconds)
        elif report == "refused" and not self._begun.done() and self.error is not None:
            self._begun.set_exception(self.error)
        elif report == "failed":
            self._hurried.clear()
            self._failed(self)


def _no_term() -> Term:
    term = Term()
    term.lost.set()
    return term


async def _is_still_led(term: Term) -> bool:
    # While the fence is closed, the term may be over.
    await first_of(term.lost.wait(), term.fence.opened())
    return not term.lost.is_set()
