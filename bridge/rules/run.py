"""The lifecycle and status that all rule runners share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from nats_bridge.bridge.errors import BridgeError

if TYPE_CHECKING:
    from nats_bridge.bridge.client.connection import Connection
    from nats_bridge.bridge.observability.rule_metrics import RuleMetrics
    from nats_bridge.bridge.rules.context import RuleContext
    from nats_bridge.bridge.settings import Rule

__all__ = ["Counters", "RuleRun", "Run", "RunState"]

_GATE = "the certainty that no other replica writes for the rule"
"""What a rule waits for while its fence is closed; see `bridge.client.write_fence`."""

RunState: TypeAlias = Literal["starting", "waiting", "ready", "draining", "stopped", "failed"]
"""Where a run is in its life; `Run` is the only one that moves it, but for `waiting`.

| from | to | when |
|---|---|---|
| starting | ready | `start` has opened everything |
| ready | waiting, and back | the kind pauses: its target is away |
| starting, waiting, ready | failed | it cannot continue (`_fail`) |
| any | draining | `stop` |
| draining | stopped, or failed if it was | everything is drained and closed |
| any | stopped | `abandon`, `end_at_once` |
"""


class Counters(Protocol):
    """What a rule counts."""

    def as_dict(self) -> dict[str, int]:
        """All counts by name."""


class RuleRun(Protocol):
    """A running rule.

    Attributes:
        state: its state.
        error: what ended it, if something did.
        remarks: differences to native behaviour that its streams will show; known after `check`.
    """

    state: RunState
    error: BaseException | None
    remarks: tuple[str, ...]

    @property
    def rule(self) -> Rule:
        """The rule."""

    @property
    def counters(self) -> Counters:
        """What it has counted."""

    @property
    def metrics(self) -> RuleMetrics:
        """Its other measures."""

    @property
    def ready(self) -> bool:
        """Whether it runs at this moment."""

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The connections that it works with at this moment."""

    @property
    def waiting_for(self) -> str | None:
        """What it waits for at this moment, in words; None where nothing outside blocks it."""

    @property
    def has_work(self) -> bool:
        """Whether it holds messages that it received and has not published, or that are not confirmed."""

    async def check(self) -> None:
        """Check the servers and refuse what must not run; create and change nothing there.

        Raises:
            StreamMissingError: a stream does not exist.
            BridgeError: any other reason against it.
        """

    async def start(self) -> None:
        """Begin; after `check`."""

    async def stop(self) -> None:
        """Finish what is in flight, and delete what the rule does not need for its next start."""

    async def abandon(self) -> None:
        """End a `stop` that was cancelled because it took too long."""

    async def end_at_once(self) -> None:
        """Fenced stop: only unsubscribe. Another replica may run the rule by now.

        In any state. What is in flight is neither written nor acknowledged, and no consumer is touched.
        """

    def status(self) -> dict[str, Any]:
        """Its status, as plain data: `stream`, `position` and what else its kind reports."""


class Run(ABC):
    """The life of every kind of run: opened once, then drained, or cut short, and closed; and what it fails with.

    A kind opens, drains and closes its own things in `_open`, `_drain` and `_close`. All three endings go through
    `_close`, which may find only a part of them open.
    """

    state: RunState
    error: BaseException | None
    remarks: tuple[str, ...] = ()
    counters: Any  # the kind's own; see `Counters`
    _context: RuleContext
    _failed: Callable[[Any], None]
    _log: Any

    _opened = False

    async def start(self) -> None:
        """Begin; see `RuleRun`."""
        self._opened = True
        about = await self._open()
        if self.error is None:  # else a message on the way has ended it already
            self.state = "ready"
            self._log.info("rule.ready", **about)

    async def stop(self) -> None:
        """Finish what is in flight; see `RuleRun`."""
        failed = self.state == "failed"
        self.state = "draining"
        if self._opened:
            try:
                await self._drain(failed=failed)
            except (BridgeError, OSError) as error:
                self._log.error("rule.drain_incomplete", reason=str(error))
            await self._close()
            self._log.info("rule.stopped", **self._counted())
        self.state = "failed" if failed else "stopped"

    async def abandon(self) -> None:
        """End a `stop` that was cancelled because it took too long; see `RuleRun`."""
        if not self._opened or self.state == "stopped":
            return
        lost = self._unfinished()
        try:
            await self._leave()
        except (BridgeError, OSError) as error:
            self._log.error("rule.abandon_incomplete", reason=str(error))
        await self._close()
        self.state = "stopped"
        self._log.error("rule.abandoned", **({"lost": lost} if lost else {}), **self._counted())

    async def end_at_once(self) -> None:
        """Leave everything to the replica that leads now; see `RuleRun`."""
        if self._opened:
            await self._cut()
            await self._close()
        self.state = "stopped"
        self._log.warning("rule.ended_at_once", **self._counted())

    @abstractmethod
    async def _open(self) -> dict[str, Any]:
        """Open what the kind works with, and begin; what `rule.ready` logs of it."""

    @abstractmethod
    async def _drain(self, *, failed: bool) -> None:
        """Stop receiving and finish what is in flight; a rule that `failed` drops that.

        Raises:
            BridgeError, OSError: something of it could not be finished.
        """

    @abstractmethod
    async def _close(self) -> None:
        """Close what is open, with no message to a server but that nothing more is received."""

    async def _leave(self) -> None:
        """Before `_close`: clean up after a drain that took too long, while the run may still act."""
        return

    async def _cut(self) -> None:
        """Before `_close`: clean up where the run may not act any more."""
        return

    def _unfinished(self) -> int:
        """The messages that `abandon` loses, where no counter holds them."""
        return 0

    @property
    def metrics(self) -> RuleMetrics:
        """The rule's measures in addition to its counters."""
        return self._context.metrics

    @property
    @abstractmethod
    def connections(self) -> tuple[Connection, ...]:
        """The connections that the rule works with; the kind's own."""

    @property
    def waiting_for(self) -> str | None:
        """A connection, the lease, or what the kind cannot work without; see `RuleRun`."""
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
        """What else the rule needs and waits for, in addition to connections and lease; the kind's own."""

    def _fail(self, error: BaseException) -> None:
        """End with an error; only the first one counts."""
        if self.error is None:
            self.error = error
            self.state = "failed"
            # Errors raised on purpose explain themselves; others need their traceback.
            trace = None if isinstance(error, BridgeError) else error
            self._log.error("rule.failed", reason=str(error) or type(error).__name__, exc_info=trace)
            self._failed(self)

    def _counted(self) -> dict[str, int]:
        """The non-zero counters."""
        return {name: n for name, n in self.counters.as_dict().items() if n}
