"""Live end to end, 128-byte messages on 1,000 subjects: native republish, the sidecar, and plain nats-py."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.figures import Ratio, Report, median_of
from benchmarks.load import chunks
from benchmarks.republish_arm import HEADER, copier, measure, native, sidecar

__all__ = ["run"]

_ROUNDS = 5


def run(version: str, *, quick: bool, say: Callable[[str], None]) -> Report:
    """Measure. The arms take turns, round after round, so that a slow minute of the machine hits them all."""
    messages = 60_000 if quick else 400_000
    server = native()
    most = sidecar("nats-bridge, at_most_once", "delivery: at_most_once")
    least = sidecar("nats-bridge, at_least_once", "delivery: at_least_once")
    passing = sidecar("nats-bridge, durable: false", "durable: false")
    ordered = copier("nats-py, ordered consumer", "ordered", 0.2)
    durable = copier("nats-py, durable consumer, acks", "durable", 0.2)
    pull = copier("nats-py, pull consumer, acks", "pull", 0.1)
    stored = sidecar("nats-bridge, catching up", "start: first", stored_first=True)
    arms = (server, most, least, passing, ordered, durable, pull, stored)
    rounds = 2 if quick else _ROUNDS
    for number in range(1, rounds + 1):
        for arm in arms:
            say(f"throughput: round {number} of {rounds}, {arm.name}")
            count = int(messages * arm.share)
            measure(arm, count, chunks(count), version=version)
    ratios = [
        Ratio("nats-bridge over native republish, at most once", most.rate / server.rate, 1.25),
        Ratio("nats-bridge over native republish, at least once", least.rate / server.rate),
        # nats-py documents several ways, which differ a lot; the target was set for pulling.
        Ratio("nats-bridge, at most once, over nats-py with an ordered consumer", most.rate / ordered.rate),
        Ratio("nats-bridge, at most once, over nats-py with a pull consumer", most.rate / pull.rate, 7.0),
        Ratio("nats-bridge, at least once, over nats-py with a durable consumer", least.rate / durable.rate),
        Ratio("nats-bridge, at least once, over nats-py with a pull consumer", least.rate / pull.rate),
        Ratio("CPU of nats-py, ordered consumer, over nats-bridge's, at most once", ordered.used / most.used),
        Ratio("nats-bridge, catching up over live", stored.rate / most.rate),
    ]
    note = (
        f"Catching up counts from the first message; all {messages:,} were there {median_of(stored.whole):.1f} s"
        " after the launch of the process."
    )
    return Report(HEADER, [arm.row() for arm in arms], ratios, (note,))
