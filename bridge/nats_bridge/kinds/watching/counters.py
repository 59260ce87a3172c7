"""Counters of a watch rule."""

from dataclasses import dataclass

from nats_bridge.observability.counters import Counters


@dataclass(slots=True)
class WatchCounters(Counters):
    """Counts of one watch rule since the process started.

    Attributes:
        received: always 0: a watch rule takes no messages.
        sent: always 0.
        bytes_out: always 0.
        looks: comparisons of all watched copies with their sources.
        failed_looks: comparisons that failed, because the server did not answer.
        stalls: how often a copy stalled.
        recoveries: how often a stalled copy made progress again.
        step_downs: leaders asked to step down.
    """

    received: int = 0
    sent: int = 0
    bytes_out: int = 0
    looks: int = 0
    failed_looks: int = 0
    stalls: int = 0
    recoveries: int = 0
    step_downs: int = 0
