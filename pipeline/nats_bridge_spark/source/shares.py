"""Decides how many tasks run at once, and divides a number of ranges or rows among streams."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

CORES: Final = "NATS_BRIDGE_SPARK_CORES"
"""The environment variable in which `pyspark_jetstream.register` passes Spark's default parallelism."""


def cores() -> int:
    """Return Spark's configured default parallelism, or else this machine's cores, because planning has no session."""
    reported = os.environ.get(CORES, "")
    return int(reported) if reported.isdigit() and int(reported) else os.cpu_count() or 1


def divided(number: int, waiting: Mapping[str, int]) -> dict[str, int]:
    """Divide a number among streams.

    Args:
        number: the number to divide.
        waiting: how much each stream could use.

    Returns:
        Never more than the stream could use, but at least 1 for each stream that could use some, so that none waits for
        long.
        The sum is larger than the number only if there are more such streams.
    """
    total = sum(waiting.values())
    if total <= number:
        return dict(waiting)
    using = {name: count for name, count in waiting.items() if count}
    spare, rest = max(number - len(using), 0), max(total - len(using), 1)
    shares = dict.fromkeys(waiting, 0) | {name: 1 + spare * (count - 1) // rest for name, count in using.items()}
    # The remainder of rounding goes to the streams that lost the most by it.
    by_loss = sorted(using, key=lambda name: spare * (using[name] - 1) % rest, reverse=True)
    for name in by_loss[: max(number - sum(shares.values()), 0)]:
        shares[name] += 1
    return shares
