"""The plan of one history, for every kind of rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nats_bridge.bridge.settings import Connection
from nats_bridge.pipeline.backfill.history import History, LiveHistory, TaskOfRows, captured_history
from nats_bridge.pipeline.backfill.outcomes import Outcomes
from nats_bridge.pipeline.backfill.request import Request
from nats_bridge.transforms.source_record import SourceRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Planned:
    """One stream's history, from the first result that is missing.

    Attributes:
        source: the stream that is copied from.
        target: the stream that stores the results; empty where a republish rule publishes nothing.
        connection: where the source is.
        created: when the source was created, as its server reports.
        held_from: the first sequence that the source holds.
        first: the first sequence whose result is missing.
        last: the last sequence wanted; the source's last, if nothing else is.
        outcomes: computes the results of rows.
        task: what publishes them; None where a republish rule publishes nothing.
        record_of: from a result's header block to the record of the message it was made of; None for another's.
        subjects: what to ask the source's server for; none for everything.
        filters: what of the source is wanted; none for everything.
        republished: whether results name their predecessors, so that the history is read in order from its beginning.
    """

    source: str
    target: str
    connection: Connection = field(repr=False)
    created: str
    held_from: int
    first: int
    last: int
    outcomes: Outcomes
    task: TaskOfRows | None
    record_of: Callable[[bytes], SourceRecord | None]
    subjects: tuple[str, ...] = ()
    filters: tuple[bytes, ...] = ()
    republished: bool = False

    def history(self, spark: SparkSession, request: Request) -> History:
        """The rows to read.

        Raises:
            OptionError, PipelineError: the capture does not hold them; see `captured_history`.
        """
        first = 1 if self.republished else self.first
        if request.capture is None:
            return LiveHistory(self.connection, self.source, first, self.last, self.subjects)
        return captured_history(
            spark,
            request.capture,
            stream=self.source,
            created=self.created,
            filters=self.filters,
            held_from=self.held_from,
            first=first,
            last=request.last,
        )
