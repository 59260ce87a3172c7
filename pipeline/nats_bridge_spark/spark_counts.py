"""Spark's own counts of a running job: rows of its scans, and tasks.

The rows are the metric `number of output rows` of the scans in the plan of each query, of files and of Python data
sources alike; running tasks report it with their heartbeats. Spark's counts per stage (`inputRecords`) have the same
rows, but only after a task's end (seen with 4.3.0). A task that is tried again counts again: these numbers are for
watching.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_ROWS: Final = "number of output rows"
_SCAN: Final = re.compile(r"^(?:Batch|MicroBatch|File)?Scan\b|^Scan ")
_SETTLING: Final = 10_000
"""Milliseconds."""
_NUMBER: Final = re.compile(r"^[\d,]+")


class SparkCounts:
    """Rows since this was made, or since `restart`, and the tasks that run; may be asked from any thread.

    Args:
        spark: the session whose queries are counted, all of them.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._context: Any = spark.sparkContext._jsc.sc()
        self._queries: Any = spark._jsparkSession.sharedState().statusStore()
        self._tracker = spark.sparkContext.statusTracker()
        self._over: dict[int, int] = {}
        self._first = 0
        self.restart()

    def restart(self) -> None:
        """Count from zero: what ran before counts no more."""
        listed = self._queries.executionsList()
        size = listed.size()
        self._first = listed.apply(size - 1).executionId() + 1 if size else 0
        self._over = {}

    def settle(self) -> None:
        """Wait, some seconds at most, until what has happened is counted: Spark updates its stores a little later."""
        self._context.listenerBus().waitUntilEmpty(_SETTLING)

    def rows(self) -> int:
        """Rows that scans have given."""
        listed = self._queries.executionsList()
        found = 0
        for at in range(listed.size() - 1, -1, -1):
            execution = listed.apply(at)
            number = int(execution.executionId())
            if number < self._first:
                break
            if number not in self._over:
                rows = self._rows_of(number)
                if not execution.completionTime().isDefined():
                    found += rows
                    continue
                self._over[number] = rows
        return found + sum(self._over.values())

    def tasks(self) -> tuple[int, int]:
        """Tasks of what runs now: those that are over, and all that are planned."""
        found = [self._tracker.getStageInfo(stage) for stage in self._tracker.getActiveStageIds()]
        running = [stage for stage in found if stage is not None]
        return sum(stage.numCompletedTasks for stage in running), sum(stage.numTasks for stage in running)

    def _rows_of(self, execution: int) -> int:
        values = self._queries.executionMetrics(execution)
        seen: set[int] = set()
        rows = 0
        nodes = self._queries.planGraph(execution).allNodes()
        for at in range(nodes.size()):
            node = nodes.apply(at)
            if not _SCAN.match(node.name()):
                continue
            metrics = node.metrics()
            for place in range(metrics.size()):
                metric = metrics.apply(place)
                number = int(metric.accumulatorId())
                if metric.name() != _ROWS or number in seen:
                    continue
                seen.add(number)
                value = values.get(number)
                said = _NUMBER.match(value.get()) if value.isDefined() else None
                rows += int(said[0].replace(",", "")) if said else 0
        return rows
