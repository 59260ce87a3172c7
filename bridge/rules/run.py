"""What every kind of rule at work has in common: a life from check to stop, and what is told of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from nats_bridge.bridge.errors import BridgeError

if TYPE_CHECKING:
    from nats_bridge.bridge.client.connection import Link
    from nats_bridge.bridge.observability.rule_metrics import Measures
    from nats_bridge.bridge.rules.context import RuleContext
    from nats_bridge.bridge.settings import Rule

__all__ = ["Counters", "FailingRun", "RuleRun", "RunState"]

_GATE = "the certainty that nobody else writes for the rule"
"""What a rule waits for whose gate is closed; see `bridge.client.write_fence`."""

RunState: TypeAlias = Literal["starting", "waiting", "ready", "draining", "stopped", "failed"]
"""`waiting`: a stream that the rule needs does not exist; the rule starts when it appears."""


class Counters(Protocol):
    """What a rule counts."""

    def as_dict(self) -> dict[str, int]:
        """All counts by name."""


class RuleRun(Protocol):
    """A rule at work.

    Attributes:
        state: where in its life it is.
        error: what ended it, if something did.
        remarks: what will be otherwise than natively, as far as the streams tell; known after `check`.
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
    def measures(self) -> Measures:
        """What it tells of its work beside that."""

    @property
    def ready(self) -> bool:
        """Whether it does its work at this moment."""

    @property
    def links(self) -> tuple[Link, ...]:
        """The connections that it works with at this moment."""

    @property
    def waiting_for(self) -> str | None:
        """What it waits for at this moment, in words; None where nothing outside keeps it from its work."""

    @property
    def has_work(self) -> bool:
        """Whether it holds messages that it took and has not passed on, or not had confirmed."""

    async def check(self) -> None:
        """Look at the servers and refuse what must not run; nothing is created or changed there.

        Raises:
            StreamMissingError: a stream does not exist.
            BridgeError: any other reason against it.
        """

    async def start(self) -> None:
        """Begin; after `check`."""

    async def stop(self) -> None:
        """Finish what is in hand and leave nothing behind that the rule does not need for its next start."""

    async def abandon(self) -> None:
        """End a `stop` that was cancelled because it took too long."""

    async def end_at_once(self) -> None:
        """End with no word to any server but that nothing more is heard: somebody else may do the rule's work by now.

        In whatever state; what is in hand is neither written nor acknowledged, and no consumer is touched.
        """

    def status(self) -> dict[str, Any]:
        """Where it stands, as plain data: `stream`, `position` and what else its kind has to tell."""


class FailingRun(ABC):
    """What every kind of run does when it cannot go on, what keeps it waiting, and what it tells at its end."""

    state: RunState
    error: BaseException | None
    remarks: tuple[str, ...] = ()
    counters: Any  # the kind's own; see `Counters`
    _context: RuleContext
    _failed: Callable[[Any], None]
    _log: Any

    @property
    def measures(self) -> Measures:
        """What the rule tells of its work beside its counters."""
        return self._context.measures

    @property
    @abstractmethod
    def links(self) -> tuple[Link, ...]:
        """The connections that the rule works with; the kind's own."""

    @property
    def waiting_for(self) -> str | None:
        """A connection, the lease, or what the kind cannot work without; see `RuleRun`."""
        away = next((f"connection '{link.name}'" for link in self.links if not link.client.is_connected), None)
        if away is None and not self._context.gate.is_open:
            return _GATE
        return away or self._waits_for()

    @abstractmethod
    def _waits_for(self) -> str | None:
        """What the rule cannot work without, beside connections and lease; the kind's own."""

    def _fail(self, error: BaseException) -> None:
        """End with an error; only the first one counts."""
        if self.error is None:
            self.error = error
            self.state = "failed"
            # Errors raised on purpose say all there is to say; others need their traceback.
            trace = None if isinstance(error, BridgeError) else error
            self._log.error("rule.failed", reason=str(error) or type(error).__name__, exc_info=trace)
            self._failed(self)

    def _counted(self) -> dict[str, int]:
        """What was counted, without the noughts."""
        return {name: n for name, n in self.counters.as_dict().items() if n}
