"""What a rule at work is given by whoever runs it, whatever its kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bridge.gate import ALWAYS_OPEN, Gate
from bridge.measures import Measures

if TYPE_CHECKING:
    from bridge.telemetry.tracing import RuleTracing

__all__ = ["RuleContext"]


@dataclass(frozen=True, slots=True)
class RuleContext:
    """A rule's surroundings.

    Attributes:
        sidecar: the sidecar's name.
        dialect: the dialect asked for, or `native`.
        failed: called with the run when it cannot go on.
        gate: asked before anything is written.
        measures: told what the rule does; outlives a run that another one of the same rule replaces.
        tracing: makes spans around batches; None where there shall be none.
    """

    sidecar: str
    dialect: str
    failed: Callable[[Any], None]
    gate: Gate = ALWAYS_OPEN
    measures: Measures = field(default_factory=Measures)
    tracing: RuleTracing | None = None

    @property
    def has_lease(self) -> bool:
        """Whether the rule works under a lease: whatever another replica left on a server may be taken from it."""
        return self.gate is not ALWAYS_OPEN
