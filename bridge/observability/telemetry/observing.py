"""What telemetry reads of a sidecar: its only access to one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Protocol

from nats_bridge.bridge.observability.telemetry.readings import ConnectionFacts, Facts, RuleFacts

if TYPE_CHECKING:
    from nats_bridge.bridge.client.connection import Link
    from nats_bridge.bridge.rules.supervisor import RuleSeat

__all__ = ["Observed", "facts_of"]

_VERSION = version("nats-bridge")
_RESULTS = ("applied", "refused", "unchanged")


class Observed(Protocol):
    """A sidecar."""

    @property
    def began(self) -> float:
        """When it began, seconds since 1970."""

    @property
    def started(self) -> bool:
        """Whether its connections were up."""

    @property
    def draining(self) -> bool:
        """Whether it is on its way out."""

    @property
    def seats(self) -> Sequence[RuleSeat]:
        """The places of its rules."""

    @property
    def links(self) -> Mapping[str, Link]:
        """Its open connections by name."""

    @property
    def reloads(self) -> Mapping[str, int]:
        """How often the configuration was read again, by result."""


def facts_of(sidecar: Observed) -> Facts:
    """The metrics of a sidecar at this moment."""
    rules = [
        RuleFacts(seat.rule.name, seat.rule.kind, seat.state, seat.ready, seat.leader, seat.measures)
        for seat in tuple(sidecar.seats)
    ]
    return Facts(
        version=_VERSION,
        started_at=sidecar.began,
        ready=sidecar.started and not sidecar.draining and all(rule.ready for rule in rules),
        rules=rules,
        connections=[
            ConnectionFacts(name, link.client.is_connected, link.reconnects)
            for name, link in tuple(sidecar.links.items())
        ],
        # From the first moment on, so that a rate sees the first one.
        reloads={**dict.fromkeys(_RESULTS, 0), **sidecar.reloads},
    )
