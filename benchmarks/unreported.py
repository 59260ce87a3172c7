"""`nats-bridge` that measures nothing of its own work, for the comparison with the one that does."""

from __future__ import annotations

from typing import Any

from nats_bridge.observability.latency import Latencies
from nats_bridge.observability.rule_metrics import RuleMetrics


def main() -> None:
    """The command line."""

    def nothing(*_: Any) -> Any:
        return 0

    for owner, names in (
        (RuleMetrics, ("took", "took_published", "arrived", "progressed", "sample")),
        (Latencies, ("record",)),
    ):
        for name in names:
            setattr(owner, name, nothing)
    from nats_bridge.cli import main

    main()
