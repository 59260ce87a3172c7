"""The lifecycle and status that all rule runners share."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import structlog

from nats_bridge.errors import BridgeError
from nats_bridge.observability.log_throttle import Pace
from nats_bridge.states import StateTable
from nats_transforms.subject import text_of

if TYPE_CHECKING:
    from nats_bridge.client.connection import Connection
    from nats_bridge.observability.rule_metrics import RuleMetrics
    from nats_bridge.rules.context import RuleContext
    from nats_bridge.telemetry.names import Metric
    from nats_transforms.republish import Refusal


_log = structlog.get_logger("bridge.rule")

_GATE = "the certainty that no other replica writes for the rule"
"""The obstacle of a rule while its fence is closed; see `nats_bridge.client.write_fence`."""

RunState: TypeAlias = Literal["starting", "waiting", "ready", "draining", "stopped", "failed"]
RunEvent: TypeAlias = Literal["opened", "paused", "resumed", "failed", "stop", "stopped"]

RUN: StateTable[RunState, RunEvent] = StateTable(
    """
              opened   paused    resumed   failed    stop      stopped
    starting  ready    -         -         failed    draining  stopped
    ready     -        waiting   ready     failed    draining  stopped
    waiting   -        waiting   ready     failed    draining  stopped
    failed    failed   failed    failed    failed    failed    stopped
    draining  -        draining  draining  draining  draining  stopped
    stopped   -        -         -         stopped   stopped   stopped
    """
)
"""The states of a run; `RuleRun` changes them.

`waiting`: the kind pauses, because its target is away. A run that has failed stays so while it is stopped, and then.
"""


class RuleRun(ABC):
    """A run of any kind: opened once, then drained, or cut short, and closed.

    A kind opens, drains and closes its own things in `_open`, `_drain` and `_close`. All three endings go through
    `_close`, which may find only a part of them open.

    Args:
        rule: the rule, of the kind's own model.
        stream: the stream for its log lines; empty for none.
        connections: the connections that it works with.

    Attributes:
        rule: the rule, of the kind's own model.
        error: the error that ended it, if any.
        remarks: differences to native behaviour that its streams will show; known after `check`.
    """

    rule: Any
    state: RunState = "starting"
    error: BaseException | None = None
    remarks: tuple[str, ...] = ()

    _opened = False
    _said_reserved = False

    def __init__(
        self, rule: Any, counters: Any, context: RuleContext, stream: str = "", *connections: Connection
    ) -> None:
        self.rule = rule
        self.counters = counters
        self._context = context
        self._uses = tuple(dict.fromkeys(connections))
        self._log = _log.bind(rule=rule.name, **({"stream": stream} if stream else {}))
        self._warned: dict[str, Pace] = {}

    @abstractmethod
    async def check(self) -> None:
        """Check the servers, and refuse a rule that must not run. Change nothing there.

        Raises:
            StreamMissingError: a stream does not exist.
            BridgeError: any other reason against it.
        """

    @property
    def begins_at_end(self) -> bool:
        """Whether the rule begins at the end of its stream if it has no position, and keeps one."""
        return False

    async def keep_start(self) -> None:
        """Store the start of the rule on the server, for the replica that leads it first. Call it after `check`.

        Only for a rule with `begins_at_end`, and if it has no position there yet.

        Raises:
            BridgeError: the server refuses, or does not answer.
        """
        return

    async def start(self) -> None:
        """Begin, after `check`."""
        self._opened = True
        about = await self._open()
        self._happened("opened")
        if self.state == "ready":  # else a message in flight has ended it already
            self._log.info("rule.ready", **about)

    async def stop(self) -> None:
        """Finish messages in flight, and delete everything that the rule does not need for its next start."""
        self._happened("stop")
        failed = self.state == "failed"
        if self._opened:
            try:
                await self._drain(failed=failed)
            except (BridgeError, OSError) as error:
                self._log.error("rule.drain_incomplete", reason=str(error))
            await self._close()
            self._log.info("rule.stopped", **self._counted())
        if not failed:
            self._happened("stopped")

    async def abandon(self) -> None:
        """End a `stop` that was cancelled because it took too long."""
        if not self._opened or self.state == "stopped":
            return
        lost = self._unfinished()
        try:
            await self._leave()
        except (BridgeError, OSError) as error:
            self._log.error("rule.abandon_incomplete", reason=str(error))
        await self._close()
        self._happened("stopped")
        self._log.error("rule.abandoned", **({"lost": lost} if lost else {}), **self._counted())

    async def end_at_once(self) -> None:
        """Fenced stop: only unsubscribe. Another replica may run the rule by now.

        In any state. Messages in flight are neither written nor acknowledged, and no consumer is touched.
        """
        if self._opened:
            await self._cut()
            await self._close()
        self._happened("stopped")
        self._log.warning("rule.ended_at_once", **self._counted())

    def _say_reserved(self, subject: bytes, refusal: Refusal) -> None:
        """Log the first message of the run that would have become a command to the server."""
        if not self._said_reserved:
            self._said_reserved = True
            self._log.warning(
                "rule.reserved_subject",
                subject=text_of(subject),
                reason=refusal.reason,
                meaning="it is not published; the rule counts all such messages, and logs the first one only",
            )

    @abstractmethod
    async def _open(self) -> dict[str, Any]:
        """Open the resources of the kind, and begin. Return the facts for `rule.ready`."""

    @abstractmethod
    async def _drain(self, *, failed: bool) -> None:
        """Stop receiving, and finish messages in flight. A rule that `failed` drops them.

        Raises:
            BridgeError, OSError: something of it could not be finished.
        """

    @abstractmethod
    async def _close(self) -> None:
        """Close open resources. Send nothing to a server except to unsubscribe."""

    async def _leave(self) -> None:
        # A run cleans up here before `_close`, after a drain that took too long, while it may still act.
        return

    async def _cut(self) -> None:
        # A run cleans up here before `_close`, if it may no longer act.
        return

    def _unfinished(self) -> int:
        # The number of messages that `abandon` loses and no counter includes.
        return 0

    @property
    def metrics(self) -> RuleMetrics:
        """The rule's measures in addition to its counters."""
        return self._context.metrics

    @property
    @abstractmethod
    def ready(self) -> bool:
        """Whether it runs at this moment."""

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The connections that it works with at this moment."""
        return self._uses

    @property
    def has_work(self) -> bool:
        """Whether it has received messages that are not published or not confirmed yet."""
        return False

    @abstractmethod
    def status(self) -> dict[str, Any]:
        """Return the status as plain data: `stream`, `position` and other facts of the kind."""

    def readings(self) -> Iterator[tuple[Metric, tuple[str, ...], float]]:
        """Yield the kind's additional measurements: metric, labels after rule and kind, and value.

        May be called in another thread.
        """
        return iter(())

    @property
    def waiting_for(self) -> str | None:
        """The obstacle, as a phrase: a connection, the lease, or the kind's own; None without one."""
        away = next(
            (
                f"connection '{connection.name}'"
                for connection in self.connections
                if not connection.client.is_connected
            ),
            None,
        )
        if away is None and not self._context.fence.is_open:
            return _GATE
        return away or self._waits_for()

    @abstractmethod
    def _waits_for(self) -> str | None:
        """Return the kind's own obstacle, in addition to connections and lease."""

    def _fail(self, error: BaseException) -> None:
        """End with an error. Only the first one counts."""
        if self.error is None:
            self.error = error
            self._happened("failed")
            # Intentional errors explain themselves; others need their traceback.
            trace = None if isinstance(error, BridgeError) else error
            self._log.error("rule.failed", reason=str(error) or type(error).__name__, exc_info=trace)
            self._context.failed(self)

    def _follow(self, task: asyncio.Task[None]) -> asyncio.Task[None]:
        # An error of the task ends the run.
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _warn(self, event: str, **what: Any) -> None:
        # The event can happen for each message.
        if self._warned.setdefault(event, Pace()).due():
            self._log.warning(event, **what)

    def _happened(self, event: RunEvent) -> None:
        self.state = RUN.after(self.state, event)

    def _counted(self) -> dict[str, int]:
        return {name: n for name, n in self.counters.as_dict().items() if n}
