"""A copying rule's history copied by several tasks at the same time, and its end by one.

Each task has the rows of some destinations. The order within a destination is the source's; between destinations there
is none. What of its share an earlier attempt has stored, a task reads from what the target
has stored since the job began.

A live rule finds its place by the newest copies in the target, which must be in order for that. So the last messages
are left to one task that begins when all others are done.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from nats_bridge.bridge.replication import (
    AckReply,
    Connection,
    CopyCounters,
    CopyEncoder,
    DeadLetters,
    Delivered,
    EntryPlan,
    JetStreamApi,
    Operation,
    PubAck,
    Rejected,
    Replay,
    StoredCopy,
    of_this_source,
    own_record,
)
from nats_bridge.bridge.replication.rules import UnfinishedCopies
from nats_bridge.bridge.settings import Connection as ConnectionSettings
from nats_bridge.pipeline.backfill.copy_task import CopyTask
from nats_bridge.pipeline.backfill.history import History
from nats_bridge.pipeline.backfill.outcomes import CopyOutcomes, taken_apart
from nats_bridge.pipeline.backfill.row_rounds import published
from nats_bridge.pipeline.backfill.rows import COLUMNS, sequence_of
from nats_bridge.pipeline.backfill.spark_work import REPORT, StoredPosition, counts_of, reported_of
from nats_bridge.pipeline.columns import ddl
from nats_bridge.pipeline.connections import connected, options_of
from nats_bridge.pipeline.errors import OptionError, marking
from nats_bridge.pipeline.progress import Progress
from nats_bridge.pipeline.rounds import Place, Standing
from nats_bridge.pipeline.source.loop_thread import LoopThread
from nats_bridge.transforms import header_block

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Parallel", "Present", "ShareTask"]

_SEQUENCES: Final = "sequence bigint"
_RECORDED: Final = ("time_ns", "header_block")
"""What shows of which message a copy was made."""

_ROUTED: Final = "destination string, subject string, sequence bigint, time_ns bigint, header_block binary, data binary"
"""A row with the subject of its copy."""


@dataclass(frozen=True, slots=True)
class Parallel:
    """An entry's history, copied by several tasks.

    Attributes:
        share: what a task does with its share.
        end: what copies the history in order, of which its end is left to it.
        holds: whether the target held anything when the job began.
        unfinished: the mark on the server that copies show no position, as long as the job has not come to its end.
        tasks: how many write at the same time.
        in_order: how many messages at the end are left to one task.
    """

    share: ShareTask
    end: CopyTask
    holds: bool
    unfinished: UnfinishedCopies
    tasks: int
    in_order: int

    def copied(
        self,
        spark: SparkSession,
        history: History,
        held_from: int,
        progress: Progress,
        loop: LoopThread,
        position: Callable[[int], StoredPosition],
    ) -> dict[str, int]:
        """Copy; the counts.

        Args:
            spark: the session.
            history: what is to be copied.
            held_from: the first sequence that the source still has.
            progress: gets the stages.
            loop: where the connections live.
            position: from where a history begins to how far one task has come.

        Raises:
            OptionError: another range has been begun, and this one would leave some of it out.
            ApiError: a server refuses, or cannot be asked.
        """
        loop.run(self._mark(history.first, history.last, held_from))
        progress.enter("reading what is stored")
        held = self._held(spark) if self.holds else None
        middle = self._middle(spark, history)
        reported: list[str] = []
        if middle >= history.first:
            progress.enter("copying in parallel")
            rows = replace(history, last=middle).at_once(spark)
            if held is not None:
                rows = rows.join(held, "sequence", "left_anti").select(*COLUMNS)
            shares = self._routed(rows).repartition(self.tasks, "destination").sortWithinPartitions("sequence")
            reported += [row[0] for row in shares.mapInArrow(self.share, REPORT).collect()]
        progress.enter("copying the end in order", count=position(middle + 1))
        rest = replace(history, first=middle + 1)
        reported += [row[0] for row in rest.given_to(self.end.behind(middle), spark).collect()]
        loop.run(self.unfinished.end())
        return reported_of(reported)

    async def _mark(self, first: int, last: int, held_from: int) -> None:
        """Keep rules from believing the target's copies."""
        begun = await self.unfinished.range()
        if begun is not None and (first > max(begun[0], held_from) or last < begun[1]):
            raise OptionError(
                f"--parallel: an earlier job has begun to copy {begun[0]} to {begun[1]} of '{self.unfinished.source}'"
                f" and has not come to its end; {first} to {last} would leave some of these out: run it with that"
                " range or more"
            )
        await self.unfinished.begin(first, last)

    def _held(self, spark: SparkSession) -> DataFrame:
        """The source's sequences that the target holds."""
        options = {
            **options_of(self.share.target),
            "stream": self.share.outcomes.plan.stream,
            "endSequence": str(self.share.since),
            "failOnDataLoss": "false",
        }
        stored = spark.read.format("jetstream").schema(ddl(_RECORDED)).options(**options).load()
        return stored.mapInArrow(self.share.present, _SEQUENCES)

    def _middle(self, spark: SparkSession, history: History) -> int:
        """The sequence behind which the entry selects what is left to one task; the one before the first for all."""
        size = 2 * self.in_order
        while True:
            first = max(history.first, history.last - size + 1)
            selected = self._routed(replace(history, first=first).at_once(spark)).select("sequence")
            newest = [row[0] for row in selected.orderBy("sequence", ascending=False).limit(self.in_order).collect()]
            if len(newest) == self.in_order:
                return int(newest[-1]) - 1
            if first == history.first:
                return history.first - 1
            size *= 4

    def _routed(self, rows: DataFrame) -> DataFrame:
        return rows.mapInArrow(_Routing(self.share.outcomes), _ROUTED)


@dataclass(frozen=True, slots=True)
class _Routing:
    """Gives rows their destinations, and leaves out what is not selected; called by Spark.

    Attributes:
        outcomes: the rule.
    """

    outcomes: CopyOutcomes

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows (see `_ROUTED`)."""
        sourcing = self.outcomes.plan.sourcing
        with marking():
            for batch in batches:
                subjects = batch.column(batch.schema.get_field_index("subject")).cast(pa.binary()).to_pylist()
                known = {subject: sourcing.destination(subject) for subject in set(subjects)}
                destinations = pa.array([known[subject] for subject in subjects], pa.binary())
                routed = pa.record_batch(
                    [destinations.view(pa.string()), *batch.columns], ["destination", *batch.schema.names]
                )
                yield routed.filter(destinations.is_valid())


@dataclass(frozen=True, slots=True)
class ShareTask:
    """Copies a share of the rows; called by Spark with the rows of some destinations, ascending.

    Attributes:
        outcomes: the rule.
        present: finds what is stored.
        since: the target's last sequence when the job began.
        target: the connection that holds the target.
        skip: where to publish what the target refuses; None to stop.
        client: the name of the task's connections in the servers' lists.
        patience: seconds for which the target may be away or full before the task gives up.
    """

    outcomes: CopyOutcomes
    present: Present
    since: int
    target: ConnectionSettings = field(repr=False)
    skip: str | None
    client: str
    patience: float = 60.0

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Copy the rows.

        Raises:
            PipelineError: marked, for the driver to find.
        """
        return counts_of(self._copied(batches))

    async def _copied(self, batches: Iterator[pa.RecordBatch]) -> dict[str, int]:
        plan, counters = self.outcomes.plan, CopyCounters()
        place = Place.of_rule(
            plan.rule,
            plan.stream,
            "while its history was copied, and what other tasks had stored is gone",
        )
        async with connected(self.target, client_name=self.client) as target:
            maker = _Maker(self, target, counters)
            return await published(
                batches,
                maker,
                target,
                place,
                plan.probe,
                counters,
                patience=self.patience,
                created=self.outcomes.target.created,
            )


class _Maker:
    """Makes copies (see `Maker`)."""

    def __init__(self, task: ShareTask, connection: Connection, counters: CopyCounters) -> None:
        plan = task.outcomes.plan
        self._task = task
        self._connection = connection
        self._loop: CopyEncoder = task.outcomes.loop(counters)
        self._counters = counters
        self._dead_letters = DeadLetters(plan.rule, plan.stream, task.skip, connection, counters)
        self._there: set[int] = set()
        self._read = task.since  # the target's last sequence that was read

    async def look(self, standing: Standing, in_flight: Sequence[list[Operation]]) -> None:
        """See what was stored since the job began (see `Sender`)."""
        self._there |= await self._task.present.since(self._connection.api, self._read + 1, standing.last)
        self._read = standing.last

    def left(self, messages: list[Operation]) -> list[Operation]:
        """What is not there."""
        left = [operation for operation in messages if int(operation[0]) not in self._there]
        self._counters.already_there += len(messages) - len(left)
        return left

    async def made_of(self, batch: list[Delivered]) -> list[Operation]:
        """What is to be published; the rule's policy decides about what cannot be."""
        wanted = [message for message in batch if int(sequence_of(message)) not in self._there]
        self._counters.already_there += len(batch) - len(wanted)
        made: list[Operation] = []
        done = 0
        while done < len(wanted):
            done, special = self._loop.run(wanted, made, done)
            if special is not None and special.operation is not None:
                made.append(special.operation)
            elif special is not None:
                subject, _, _, payload = special.message
                sequence = int(sequence_of(special.message))
                await self._reject(sequence, subject, special.header_block, payload, special.reason)
        return made

    async def refused(self, operation: Operation, pub_ack: PubAck) -> None:
        """The rule's policy decides."""
        reason = f"{pub_ack.description} ({pub_ack.err_code})"
        await self._reject(int(operation[0]), *taken_apart(operation[1]), reason)

    async def _reject(self, sequence: int, subject: bytes, block: bytes, payload: bytes, reason: str) -> None:
        source = self._task.outcomes.plan.source.name
        await self._dead_letters.handle(Rejected(source, sequence, subject, block, payload, reason))


@dataclass(frozen=True, slots=True)
class Present:
    """Finds the source's sequences; called by Spark with the rows of a target.

    Attributes:
        plan: the entry.
        key: what stands for it in message ids.
        created_ns: when the source was created, nanoseconds since 1970.
    """

    plan: EntryPlan
    key: bytes
    created_ns: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The sequences (see `_SEQUENCES`)."""
        with marking():
            for batch in batches:
                times, blocks = (batch.column(batch.schema.get_field_index(name)).to_pylist() for name in _RECORDED)
                found = self._sequences(zip(times, (block or b"" for block in blocks), strict=True))
                yield pa.record_batch({"sequence": pa.array(found, pa.int64())})

    async def since(self, api: JetStreamApi, first: int, last: int) -> frozenset[int]:
        """The sequences of what a target stores in [first, last].

        Raises:
            ApiError: the server cannot be asked.
        """
        found: list[int] = []
        replay = Replay(api, self.plan.stream, headers_only=True)
        async with contextlib.aclosing(replay.between(first, last)) as batches:
            async for batch in batches:
                found += self._sequences((AckReply.parse(reply).time_ns, block) for _, reply, block, _ in batch)
        return frozenset(found)

    def _sequences(self, stored: Iterable[tuple[int, bytes]]) -> list[int]:
        copies = [
            StoredCopy(b"", time_ns, record, header_block.read(block, b"Nats-Msg-Id"))
            for time_ns, block in stored
            if (record := own_record(self.plan.sourcing.is_own, block)) is not None
        ]
        return [copy.record.sequence for copy in of_this_source(copies, self.key, self.created_ns)]
