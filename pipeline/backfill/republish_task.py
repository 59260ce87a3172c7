"""Republishes a task's rows, as the sidecar does, into the stream that stores the results.

Every publication is confirmed by that stream. Republished messages have no ids of ours, so where the task resumes after
a failure is read from the stream alone: `Nats-Stream` and `Nats-Sequence` say what is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace

import pyarrow as pa
import structlog

from nats_bridge.bridge.replication import (
    NEWEST,
    Connection,
    CopyCounters,
    Delivered,
    Operation,
    PubAck,
    Replay,
    Resume,
    Target,
    TargetTail,
    compared,
    read_tail,
)
from nats_bridge.bridge.settings import Connection as ConnectionSettings
from nats_bridge.pipeline.backfill.outcomes import RepublishOutcomes
from nats_bridge.pipeline.backfill.rows import Batches, KeptRows, sequence_of
from nats_bridge.pipeline.backfill.spark_work import counts_of
from nats_bridge.pipeline.connections import connected
from nats_bridge.pipeline.errors import DataLostError
from nats_bridge.pipeline.rounds import Place, Rounds, Standing
from nats_bridge.transforms.republish import Republish
from nats_bridge.transforms.source_record import SourceRecord

_log = structlog.get_logger("pipeline.backfill")


@dataclass(frozen=True, slots=True)
class RepublishTask:
    """Republishes rows; called by Spark with the rows of the whole history, in order.

    Attributes:
        rule: the rule's name.
        outcomes: what makes the messages.
        republish: the compiled rule.
        stream: the stream whose history it is.
        captured_by: the stream that stores the results.
        probe: a subject that it stores.
        source: the connection that holds the history's stream.
        target: the connection that is published to.
        created_ns: when the history's stream was created, nanoseconds since 1970.
        last: the last sequence wanted; what the results' stream holds of later ones is the live rule's.
        client: the name of the task's connections in the servers' lists.
        patience: seconds for which the target may be away or full before the task gives up.
    """

    rule: str
    outcomes: RepublishOutcomes
    republish: Republish
    stream: str
    captured_by: str
    probe: bytes
    source: ConnectionSettings = field(repr=False)
    target: ConnectionSettings = field(repr=False)
    created_ns: int
    last: int
    client: str
    patience: float = 60.0

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Republish the rows.

        Raises:
            PipelineError: marked, for the driver to find.
        """
        return counts_of(self._republished(batches))

    def record_of(self, block: bytes) -> SourceRecord | None:
        """The source message of a result, from its header block; None for other messages."""
        marks = b"\r\nNats-Stream: %b\r\nNats-Subject: " % self.stream.encode()
        at = block.rfind(marks)
        if at < 0:
            return None
        subject, _, rest = block[at + len(marks) :].partition(b"\r\nNats-Sequence: ")
        number = rest.partition(b"\r\n")[0]
        if not number.isdigit() or int(number) > self.last:
            return None
        return SourceRecord(self.stream.encode(), int(number), subject=subject)

    async def _republished(self, batches: Batches) -> dict[str, int]:
        counters = CopyCounters()
        place = Place.of(self.captured_by, "backfill", "since the job began", rule=self.rule)
        async with (
            connected(self.target, client_name=self.client) as target,
            connected(self.source, client_name=self.client) as source,
        ):
            maker, rows = _Maker(self, source, target, counters), KeptRows(batches)
            rounds: Rounds[list[Operation]] = Rounds(
                place, target, maker, counters, patience=self.patience, interrupted=self._interrupted
            )
            try:
                await rounds.open(self.probe)
                async for piece in rows.behind(0):
                    made = maker.made_of(piece.messages())
                    rows.stored(rows.last)  # kept as operations from now on
                    await rounds.send(made)
                await rounds.settled()
            finally:
                await rounds.close()
        return {**asdict(counters), "rows": rows.read, "last": rows.last}

    def _interrupted(self, reason: str) -> None:
        _log.warning("backfill.interrupted", rule=self.rule, reason=reason)


class _Maker:
    """Makes what is republished, and has it sent (see `Sender`)."""

    def __init__(self, task: RepublishTask, source: Connection, target: Connection, counters: CopyCounters) -> None:
        self._task = task
        self._source = source
        self._target = target
        self._counters = counters
        self._begun: Resume | None = None  # what was there at the beginning
        self._there: Resume | None = None  # and when the present round began

    async def look(self, standing: Standing, in_flight: Sequence[list[Operation]]) -> None:
        """Read what is stored (see `Sender`)."""
        task = self._task
        there = self._there = await republished_position(
            task, self._source, self._target, standing.target, standing.last, standing.confirmed
        )
        if self._begun is None:
            self._begun = there
            if there.handled < task.outcomes.first - 1:
                raise DataLostError(
                    f"rule '{task.rule}': stream '{task.captured_by}' lost messages since the job began: run the"
                    " backfill again"
                )

    def left(self, messages: list[Operation]) -> list[Operation]:
        """What is not there."""
        assert self._there is not None
        left = [operation for operation in messages if not _holds(self._there, int(operation[0]))]
        self._counters.already_there += len(messages) - len(left)
        return left

    def made_of(self, batch: list[Delivered]) -> list[Operation]:
        """The messages to publish."""
        outcomes, begun = self._task.outcomes, self._begun
        assert begun is not None
        made: list[Operation] = []
        for message in batch:
            sequence = sequence_of(message)
            number = int(sequence)
            if _holds(begun, number):
                outcomes.seen(message)
                self._counters.already_there += number in begun.there
                continue
            operation, reason = outcomes.operation_of(message)
            if operation is not None:
                made.append((sequence, operation))
            elif reason == "unmatched":
                self._counters.unselected += 1
            else:
                self._counters.rejected += 1
        return made

    async def refused(self, operation: Operation, pub_ack: PubAck) -> None:
        """Handle a message that the stream does not take: it would not take it from the sidecar or a server, either."""
        self._counters.rejected += 1
        _log.warning(
            "backfill.refused", rule=self._task.rule, sequence=int(operation[0]), server_says=pub_ack.description
        )


def _holds(there: Resume, sequence: int) -> bool:
    return sequence <= there.handled or sequence in there.there


async def republished_position(
    task: RepublishTask, source: Connection, target: Connection, info: Target, last: int, confirmed: int = 0
) -> Resume:
    """Where to resume, from what the results' stream holds.

    Args:
        task: what is done.
        source: the connection that holds the history's stream.
        target: the connection that holds the results' stream.
        info: that stream.
        last: its last sequence.
        confirmed: the sequence up to which everything is known to be stored; 0 for none.

    Raises:
        ApiError: a server cannot be asked.
    """
    # What another rule republished of the same stream has other subjects; older ones are of an earlier stream.
    is_random = task.republish.transform.is_random

    async def newest(wanted: int, whatever_age: bool) -> TargetTail:
        tail = await read_tail(
            target.api,
            task.captured_by,
            last,
            task.record_of,
            wanted,
            rule=task.rule,
            whatever_age=whatever_age,
        )
        copies = tuple(
            copy
            for copy in tail.copies
            if copy.time_ns >= task.created_ns
            and (is_random or task.republish.destination(copy.record.subject) == copy.subject)
        )
        return replace(tail, copies=copies)

    tail = await newest(NEWEST, False)
    if confirmed:
        return Resume(confirmed, frozenset(c.record.sequence for c in tail.copies if c.record.sequence > confirmed))
    if not tail.copies:
        return Resume(task.outcomes.first - 1)
    history = Replay(source.api, task.stream, (), headers_only=True)
    return await compared(history, task.republish, info, tail, newest)
