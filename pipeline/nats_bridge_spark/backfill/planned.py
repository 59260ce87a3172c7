"""The plan of one history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nats_bridge.client.stream_identity import Bounds
from nats_bridge.settings import Connection
from nats_bridge_spark.backfill.history import CapturedHistory, History, LiveHistory, TaskOfRows
from nats_bridge_spark.backfill.request import BackfillRequest
from nats_bridge_spark.errors import OptionError
from nats_transforms.source_record import SourceRecord
from nats_transforms.subject import REST, is_subset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from nats_bridge_spark.capture.folder import Capture


@dataclass(frozen=True, slots=True)
class Planned:
    """One stream's history, from the first copy that is missing.

    Attributes:
        source: the stream that is copied from.
        target: the stream that stores the copies.
        connection: where the source is.
        created: when the source was created, as its server reports.
        held_from: the first sequence that the source holds.
        bounds: its first and last message.
        first: the first sequence whose copy is missing.
        last: the last sequence wanted; the source's last, if nothing else is.
        task: publishes the copies of rows.
        record_of: from a copy's header block to its source record; None for the message of another client.
        subjects: the filters to ask the source's server for; none for everything.
        filters: the subjects of the source that are wanted; none for everything.
    """

    source: str
    target: str
    connection: Connection = field(repr=False)
    created: str
    held_from: int
    bounds: Bounds
    first: int
    last: int
    task: TaskOfRows
    record_of: Callable[[bytes], SourceRecord | None]
    subjects: tuple[str, ...] = ()
    filters: tuple[bytes, ...] = ()

    def history(self, spark: SparkSession | None, request: BackfillRequest) -> History:
        """The rows to read.

        Raises:
            OptionError: there is no capture, or not of this stream, or it lacks something that the stream holds.
            PipelineError: the capture cannot be read.
        """
        if request.capture is None:
            return LiveHistory(self.connection, self.source, self.first, self.last, self.subjects)
        from nats_bridge_spark.capture.reading import capture_at

        capture = capture_at(spark, request.capture)
        self._require_held(capture, f"--capture {request.capture}")
        last = capture.last if request.last is None else min(request.last, capture.last)
        return CapturedHistory(request.capture, capture, self.first, last)

    def _require_held(self, capture: Capture, place: str) -> None:
        """Refuse a capture of something else, or with less than the stream holds itself."""
        stream, created, first = self.source, self.created, self.first
        if capture.stream != stream:
            raise OptionError(f"{place}: is of stream '{capture.stream}', and the rule reads '{stream}'")
        if capture.known.differs(created, self.bounds):
            raise OptionError(
                f"{place}: is of the stream '{stream}' that was created {capture.created}; the present one was created"
                f" {created}, and its sequences mean other messages"
            )
        for wanted in self.filters or (REST,):
            if capture.subjects and not any(is_subset(wanted, subject.encode()) for subject in capture.subjects):
                raise OptionError(
                    f"{place}: holds only {', '.join(capture.subjects)}, and the rule selects"
                    f" '{wanted.decode('utf-8', 'replace')}'"
                )
        if first < capture.begin and self.held_from < capture.begin:
            raise OptionError(
                f"{place}: begins at sequence {capture.begin}, and {first} to {capture.begin - 1} are wanted, which the"
                f" stream holds from {self.held_from} on: capture these, leave --capture out, or say --from"
                f" {capture.begin}"
            )
