"""When a batch of a streaming read begins although few messages wait: as Spark's source for Kafka decides."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["TriggerDelay"]


@dataclass(slots=True)
class TriggerDelay:
    """How long a batch may be delayed.

    A query's first batch is not delayed, nor is one that comes `longest` after the batch before.

    Attributes:
        longest: seconds between two batches, where any message waits.
        clock: seconds that only grow.
    """

    longest: float
    clock: Callable[[], float] = time.monotonic
    _began: float | None = field(default=None, init=False)

    @property
    def is_over(self) -> bool:
        """Whether a batch may begin with less than the least."""
        return self._began is None or self.clock() - self._began >= self.longest

    def begin(self) -> None:
        """A batch begins."""
        self._began = self.clock()
