"""The supervisor of one rule, for as long as the rule is in the configuration.

Theory of operation. A run does a rule's work once, from its start to its end. A supervisor starts runs, one at a
time: when the rule's streams exist, when this sidecar leads the rule (see `nats_bridge.rules.leadership`), and again
after the lead was lost or the configuration changed. Counters and measures belong to the supervisor, so they continue
over runs.

A task starts the run and then watches the term. `stop` ends that task first, and then the run, so that
only one of them acts on the run.

A run that fails ends, and its lead with it, so that another replica may try. The rule is then `failed` for a pause that
grows with each failure in a row, and is started again: its servers may have changed in the meantime. With `fail_fast`
it stays failed, and the sidecar ends.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import structlog

from nats_bridge.client.consumer_names import RULE
from nats_bridge.client.tasks import end_tasks, happens
from nats_bridge.client.waiting import CLOSING, RULE_FAILED, SERVER_AWAY
from nats_bridge.consuming.missing_streams import appeared
from nats_bridge.errors import BridgeError, RuleRefusedError, StreamMissingError
from nats_bridge.observability.rule_metrics import RuleMetrics
from nats_bridge.rule_kinds import kind_of
from nats_bridge.rules.context import RuleContext
from nats_bridge.rules.leadership.term import Leadership, Term
from nats_bridge.rules.run import RuleRun
from nats_bridge.settings import Rule, Settings

if TYPE_CHECKING:
    from nats_bridge.client.connection import Connection
    from nats_bridge.rules.loops.account_graph import AccountGraph
    from nats_bridge.telemetry.tracing import RuleTracing


SupervisorState: TypeAlias = Literal["waiting", "standby", "starting", "ready", "draining", "stopped", "failed"]
"""`waiting`: a stream that the rule needs does not exist; `standby`: another replica leads the rule; `failed`: the rule
is started again after a pause, or with `fail_fast` not at all."""

_log = structlog.get_logger("bridge.supervisor")

_DRAIN = 22.0  # seconds for a rule to finish; with the rest, within Kubernetes' default grace period of 30
_STABLE = 60.0  # seconds that a rule has run before a failure, after which the pauses begin again with the first


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a rule does not run.

    Attributes:
        error: the reason.
        tries: how often it failed in a row.
        again_at: when it is started again; None if it is not.
    """

    error: BaseException
    tries: int
    again_at: datetime | None

    @property
    def code(self) -> str:
        """The reason for programs."""
        return self.error.code if isinstance(self.error, BridgeError) else "unexpected"


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
    connections: dict[str, Connection]
    loops: AccountGraph
    tracing_of: Callable[[Rule], RuleTracing | None] = lambda _: None

    def make_run(
        self,
        rule: Rule,
        failed: Callable[[Any], None] = lambda _: None,
        term: Term | None = None,
        metrics: RuleMetrics | None = None,
    ) -> RuleRun:
        """Return a run of one of the rules; it does nothing before its `check`.

        Args:
            rule: the rule.
            failed, term, metrics: see `RuleContext`; left out where the run is only checked.
        """
        settings = self.settings
        context = RuleContext(
            settings.name,
            settings.dialect_of(rule),
            failed,
            term or Term(),
            metrics or RuleMetrics(),
            self.tracing_of(rule),
        )
        return kind_of(rule).run(rule, settings, self.connections, context)


class RuleSupervisor:
    """The supervisor of one rule.

    Args:
        rule: the rule.
        assembly: the configuration that it belongs to.
        leadership: decides when this sidecar leads the rule.
        failed: called with the supervisor when its rule has failed; `failure` says why.

    Attributes:
        rule: the rule as it is now.
        run: the present run, or the last one; None before the first one.
        metrics: the rule's metrics, over all runs.
        failure: why it does not run, also while it is started again; None if nothing is against it.
        tried: set when the first start has succeeded or failed, or waits.
    """

    def __init__(
        self, rule: Rule, assembly: Assembly, leadership: Leadership, failed: Callable[[RuleSupervisor], None]
    ) -> None:
        self.rule = rule
        self.run: RuleRun | None = None
        self.metrics = RuleMetrics()
        self.failure: Failure | None = None
        self.tried = asyncio.Event()
        self._assembly = assembly
        self._leadership = leadership
        self._failed = failed
        self._phase: SupervisorState = "starting"
        self._prepared: RuleRun | None = None  # checked, to be started
        self._missing: StreamMissingError | None = None
        self._obstacle = ""  # of the last start, if that was passing
        self._is_checked = False
        self._start_is_kept = False
        self._looks_for_loops = False
        self._error: BaseException | None = None  # of the present run
        self._failing = asyncio.Event()
        self._tries = 0
        self._again = 0.0  # when a failed rule is started again
        self._ready_since = 0.0
        self._hurried = asyncio.Event()
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
    def error(self) -> BaseException | None:
        """Why the rule does not run."""
        return self.failure.error if self.failure is not None else None

    @property
    def ready(self) -> bool:
        """Whether the rule runs at this moment, or is on standby for another replica that leads it."""
        if self._phase == "standby":
            return self._leadership.is_led(self.rule.name)
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
                holder = "another replica" if self.ready else "no replica"
                return f"the lead, which {holder} has at this moment"
            case "ready" | "draining" if self.run is not None:
                return self.run.waiting_for
            case "starting":
                beginning = self.run.waiting_for if self.run is not None and self._is_running else self._connection_away
                return beginning or f"its servers to answer what its start asks{self._obstacle}"
            case _:
                return None

    @property
    def _connection_away(self) -> str | None:
        connections = self._assembly.connections
        away = (name for name in self.rule.connections if not connections[name].client.is_connected)
        return next((f"connection '{name}'" for name in away), None)

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
        self._is_checked = True

    async def start(self) -> None:
        """Start the rule; return when it runs, waits for a stream, or is on standby; it is not started again. After
        `check`.

        Raises:
            BridgeError: what is against the rule.
        """
        self.resume()
        self._begun = asyncio.get_running_loop().create_future()
        await self._begun

    def resume(self) -> None:
        """Start the rule as soon as its servers allow it, also after `halt`, without waiting for that."""
        self._error = self.failure = None
        self._failing.clear()
        self._tries, self._obstacle = 0, ""
        self._begun = None
        self._phase = "starting"
        self._task = asyncio.create_task(self._live())

    async def halt(self) -> bool:
        """Drain the run and keep the lead, for a changed rule; return whether everything in flight was finished."""
        failed = self._phase == "failed"
        self._phase = "draining"
        await end_tasks(self._task)
        if self._begun is not None:
            self._begun.cancel()
        self._task = self._prepared = self._missing = None
        self._is_checked = self._start_is_kept = False
        finished = await self._end_run()
        self._phase = "failed" if failed else "stopped"
        return finished

    async def stop(self) -> bool:
        """Drain the run and release the lead; return whether everything in flight was finished."""
        finished = await self.halt()
        await self._end_term(finished=finished)
        return finished

    def hurry(self) -> None:
        """Start a failed rule again now: a person may have repaired what it needs."""
        self._hurried.set()

    def look_for_loops(self) -> None:
        """Refuse to start while the rule takes part in a loop."""
        self._looks_for_loops = True

    def refuse(self, error: BridgeError) -> None:
        """Fail a running rule, for a reason that its run cannot see."""
        self._looks_for_loops = True
        if self._phase in ("starting", "ready") and not self._failing.is_set():
            self._log.error("rule.failed", reason=str(error))
            self._error = error
            self._failing.set()

    def take(self, rule: Rule, assembly: Assembly) -> None:
        """Apply another configuration; a rule that changes with it must be halted."""
        self.rule = rule
        self._assembly = assembly

    # -- the way to work ---------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        RULE.set(self.rule.name)
        while True:
            try:
                if self._phase == "failed":
                    await self._end_term(finished=await self._end_run())
                    await happens(self._hurried, within=max(self._again - asyncio.get_running_loop().time(), 0.0))
                await self._work_on()
            except Exception as error:
                if not self._is_started_again(error):
                    return

    async def _work_on(self) -> None:
        """Work until the rule fails.

        Raises:
            BridgeError: why it failed, or any other error.
        """
        await self._look_first()
        while True:
            await self._wait_for_streams()
            term = await self._lead()
            if not await self._work(term):
                continue
            if not self._failing.is_set():  # by a message during the start
                self._phase, self._ready_since = "ready", asyncio.get_running_loop().time()
                self.failure = None
                self._has_begun()
                await _first_of(term.lost.wait(), term.surplus.wait(), self._failing.wait())
            if term.lost.is_set():
                self._log.warning("rule.lead_lost", meaning="another replica may do the rule's work by now")
                self._phase = "standby"
                await self._end_run()
            elif self._failing.is_set():
                assert self._error is not None
                raise self._error
            else:
                self._phase = "draining"
                await self._end_term(finished=await self._end_run())
                # What the drain met does not count: the next leader meets it.

    async def _look_first(self) -> None:
        """Check the servers before the rule asks for the lead, when all its connections are up."""
        failures = 0
        while not self._is_checked:
            self._phase = "starting"
            if self._connection_away is not None:
                self.tried.set()
            for name in self.rule.connections:
                await self._assembly.connections[name].connected()
            try:
                await self.check()
            except BridgeError as error:
                if not error.passing or self._is_awaited:
                    raise
                failures += 1
                await self._delay(error, SERVER_AWAY.after(failures))

    async def _delay(self, error: BridgeError, pause: float) -> None:
        """Wait after a start that a server prevented for the moment."""
        self._obstacle = f" ({error})"
        self.tried.set()
        self._log.warning("rule.start_delayed", reason=str(error), again_in=pause)
        await asyncio.sleep(pause)

    async def _wait_for_streams(self) -> None:
        if self._missing is None:
            return
        self._phase = "waiting"
        self.failure = None
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
                await self._keep_start()
                self._phase = "standby"
                self.failure = None
                self._has_begun()
            self._term = await self._leadership.lead(self.rule)
        return self._term

    async def _keep_start(self) -> None:
        """Fix where a rule without a position begins, before the wait for the lead: it can take long."""
        if self._start_is_kept:
            return
        try:
            run = self._prepared or self._new_run()
            if run is self._prepared or await self._checked(run):
                if run.begins_at_end and not await self._leadership.has_position(self.rule.name):
                    await run.keep_start()
                self._start_is_kept = True
        except BridgeError as error:
            if not error.passing:
                raise
            meaning = "if it has no position yet, the replica that leads it first decides where it begins"
            self._log.warning("rule.start_not_kept", reason=str(error), meaning=meaning)

    async def _work(self, term: Term) -> bool:
        """Start a run; return False if a stream is missing, or the term is over already."""
        self._phase = "starting"
        failures = 0
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
                failures += 1
                await self._delay(error, SERVER_AWAY.after(failures))
                if self._leadership.shared:
                    return False
        return False

    async def _start_run(self, term: Term) -> bool:
        run, self._prepared = self._prepared, None
        if run is None or self._leadership.shared:
            run = self._new_run(term)
            if not await self._checked(run):
                return False
        if self._looks_for_loops:
            await self._assembly.loops.refuse({self.rule.name})
            self._looks_for_loops = False
        if self.run is not None:
            self._past.update(self.run.counters.as_dict())
        self.run, self._is_running = run, True
        self._error = None
        self._failing.clear()
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

    def _new_run(self, term: Term | None = None) -> RuleRun:
        return self._assembly.make_run(self.rule, self._run_failed, term, self.metrics)

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
        before = run.error  # what fails in the drain is left in flight
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
            return error is None and run.error is before
        self._log.error("rule.drain_timeout", seconds=_DRAIN)
        await end_tasks(ending)
        try:
            async with asyncio.timeout(CLOSING):
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
        self.tried.set()
        if self._begun is not None and not self._begun.done():
            self._begun.set_result(None)

    def _run_failed(self, run: RuleRun) -> None:
        """Handle a run that cannot continue; the task that works on the rule does the rest."""
        if run is not self.run or run.error is None or self._failing.is_set():
            return
        if (term := self._term) is not None and not term.fence.is_open:
            # Paused or cut off for so long that another replica may lead, which can be what was in its way.
            self._in_doubt = asyncio.create_task(self._fail_if_still_leading(run, term))
            return
        self._error = run.error
        self._failing.set()

    async def _fail_if_still_leading(self, run: RuleRun, term: Term) -> None:
        if await _is_still_led(term):
            self._run_failed(run)

    def _is_started_again(self, error: BaseException) -> bool:
        """Note why the rule failed; return whether it is started again."""
        self._phase = "failed"
        if self._is_awaited and self._begun is not None:
            self.failure = Failure(error, 1, None)
            self._begun.set_exception(error)
            return False
        if error is not self._error:  # not logged by the run
            trace = None if isinstance(error, BridgeError) else error
            self._log.error("rule.failed", reason=str(error) or type(error).__name__, exc_info=trace)
        again = not self._assembly.settings.fail_fast
        loop = asyncio.get_running_loop()
        if self._ready_since and loop.time() - self._ready_since >= _STABLE:
            self._tries = 0
        self._ready_since = 0.0
        self._tries += 1
        pause = RULE_FAILED.after(self._tries)
        self._again = loop.time() + pause
        again_at = datetime.now(UTC) + timedelta(seconds=pause) if again else None
        self.failure = Failure(error, self._tries, again_at)
        self._is_checked = False
        self._looks_for_loops = self._looks_for_loops or isinstance(error, RuleRefusedError)
        self._hurried.clear()
        self.tried.set()
        self._failed(self)
        return again


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
