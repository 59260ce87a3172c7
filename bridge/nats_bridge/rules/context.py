"""The context that the supervisor gives to a run of any kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nats_bridge.client.write_fence import ALWAYS_OPEN, WriteFence
from nats_bridge.observability.rule_metrics import RuleMetrics
from nats_bridge.rules.leadership.term import Term
from nats_transforms.dialect import Dialect, dialect, server_dialect

if TYPE_CHECKING:
    from nats_bridge.client.connection import Connection
    from nats_bridge.telemetry.tracing import RuleTracing


@dataclass(frozen=True, slots=True)
class RuleContext:
    """A rule's surroundings.

    Attributes:
        dialect: the configured dialect, or `native`.
        failed: called with the run when it cannot continue.
        term: the term in which this sidecar leads the rule.
        metrics: the rule's metrics, which outlive a run.
        tracing: makes spans around batches, or None.
        absent_since_ns: the time when the rule found its stream missing, in nanoseconds since 1970; None if it has run
            since, or never did.
    """

    sidecar: str
    dialect: str
    failed: Callable[[Any], None]
    term: Term = field(default_factory=Term)
    metrics: RuleMetrics = field(default_factory=RuleMetrics)
    tracing: RuleTracing | None = None
    absent_since_ns: int | None = None

    @property
    def fence(self) -> WriteFence:
        """Asked before anything is written."""
        return self.term.fence

    def dialect_at(self, connection: Connection) -> Dialect:
        """Return the rule's dialect; `native` is the dialect of the server on this connection."""
        return server_dialect(connection.server_version) if self.dialect == "native" else dialect(self.dialect)

    @property
    def has_lease(self) -> bool:
        """Whether the rule runs with a lease, and may take over the consumers of another replica."""
        return self.fence is not ALWAYS_OPEN


def queue_group(rule: str) -> str:
    """Return the queue group in which the replicas of a sidecar share a rule's subscription."""
    return f"nats-bridge_{rule}"
