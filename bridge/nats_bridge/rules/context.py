"""The context of a run of any kind, and the assembly of a configuration that makes the runs of its rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nats_bridge.client.write_fence import ALWAYS_OPEN, WriteFence
from nats_bridge.observability.rule_metrics import RuleMetrics
from nats_bridge.rule_kinds import kind_of
from nats_bridge.rules.leadership.term import Term
from nats_bridge.settings import Rule, Settings
from nats_transforms.dialect import Dialect, dialect, server_dialect

if TYPE_CHECKING:
    from nats_bridge.client.connection import Connection
    from nats_bridge.rules.loops.account_graph import AccountGraph
    from nats_bridge.rules.run import RuleRun
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


@dataclass(frozen=True, slots=True)
class Assembly:
    """A configuration with everything that its rules need to run.

    Attributes:
        connections: the open connections by name.
        loops: refuses rules that would loop.
        tracing_of: returns the tracing of a rule, or None.
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
        absent_since_ns: int | None = None,
    ) -> RuleRun:
        """Return a run of one of the rules. It does nothing before its `check`.

        Args:
            failed, term, metrics, absent_since_ns: see `RuleContext`; left out if the run is only checked.
        """
        settings = self.settings
        context = RuleContext(
            settings.name,
            settings.dialect_of(rule),
            failed,
            term or Term(),
            metrics or RuleMetrics(),
            self.tracing_of(rule),
            absent_since_ns,
        )
        return kind_of(rule).run(rule, settings, self.connections, context)


def queue_group(rule: str) -> str:
    """Return the queue group in which the replicas of a sidecar share a rule's subscription."""
    return f"nats-bridge_{rule}"
