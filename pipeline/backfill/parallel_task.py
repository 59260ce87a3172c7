"""What a task does with its share of the rows where several write at the same time: those of some destinations.

The order within a destination is the origin's; between destinations there is none. What of the share is there already,
because an earlier attempt stored it, is read from what the target has stored since the job began.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from typing import Final

import pyarrow as pa

from nats_bridge.bridge.client.connection import Link
from nats_bridge.bridge.client.wire import Delivered
from nats_bridge.bridge.kinds.copying.counters import CopyCounters
from nats_bridge.bridge.kinds.copying.dead_letters import Rejected, Rejections
from nats_bridge.bridge.kinds.copying.encoder import CopyLoop, Operation, Special
from nats_bridge.bridge.kinds.copying.pub_ack import Verdict
from nats_bridge.bridge.kinds.copying.target import Target
from nats_bridge.bridge.settings import Connection
from nats_bridge.pipeline.backfill.copy_outcomes import CopyOutcomes, taken_apart
from nats_bridge.pipeline.backfill.kept_rows import KeptRows
from nats_bridge.pipeline.backfill.present import Present
from nats_bridge.pipeline.backfill.rounds import Place, Rounds
from nats_bridge.pipeline.backfill.rows import sequence_of
from nats_bridge.pipeline.backfill.task_counts import counts_of
from nats_bridge.pipeline.connections import connected
from nats_bridge.pipeline.errors import DataLostError, marking

__all__ = ["ROUTED", "ParallelTask", "Routing"]

ROUTED: Final = "destination string, subject string, sequence bigint, time_ns bigint, header_block binary, data binary"
"""A row with the subject of its copy."""


@dataclass(frozen=True, slots=True)
class Routing:
    """Gives rows their destinations, and leaves out what is not selected; called by Spark.

    Attributes:
        outcomes: the rule.
    """

    outcomes: CopyOutcomes

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows (see `ROUTED`)."""
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
class ParallelTask:
    """Copies a share of the rows; called by Spark with the rows of some destinations, ascending.

    Attributes:
        outcomes: the rule.
        present: finds what is there.
        since: the target's last sequence when the job began.
        target: the connection that holds the target.
        skip: where to publish what the target refuses; None to stop.
        client: the name of the task's connections in the servers' lists.
        patience: seconds for which the target may be away or full before the task gives up.
    """

    outcomes: CopyOutcomes
    present: Present
    since: int
    target: Connection = field(repr=False)
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
        plan = self.outcomes.plan
        async with AsyncExitStack() as open_links:
            target = await open_links.enter_async_context(connected(self.target, client_name=self.client))
            counters, rows = CopyCounters(), KeptRows(batches)
            rejections = Rejections(plan.rule, plan.stream, self.skip, target, counters)
            maker = _Maker(self, counters, rejections)
            place = Place(plan.rule, plan.stream, plan.probe, self.patience)
            await Rounds(place, target, rows, maker, counters).run()
        return {**asdict(counters), "rows": rows.read, "last": rows.last}


class _Maker:
    """Makes copies (see `Maker`)."""

    def __init__(self, task: ParallelTask, counters: CopyCounters, rejections: Rejections) -> None:
        self._task = task
        self._loop: CopyLoop = task.outcomes.loop(counters)
        self._counters = counters
        self._rejections = rejections
        self._specials: list[Special] = []
        self._there: Container[int] = frozenset()

    async def begin(self, link: Link, target: Target, last: int, confirmed: int) -> Container[int]:
        """See what is there of what was stored since the job began.

        Raises:
            DataLostError: the target is another stream than then.
        """
        task = self._task
        if target.created != task.outcomes.target.created:
            plan = task.outcomes.plan
            raise DataLostError(
                f"rule '{plan.rule}': stream '{plan.stream}' was recreated while its history was copied, and what"
                " other tasks had stored is gone: run the backfill again"
            )
        found = await task.present.since(link.api, task.since + 1, last)
        self._there = frozenset(found.tolist())
        return self._there

    def operations(self, batch: list[Delivered]) -> list[Operation]:
        """What is to be published."""
        wanted = [message for message in batch if int(sequence_of(message)) not in self._there]
        self._counters.already_there += len(batch) - len(wanted)
        made: list[Operation] = []
        done = 0
        while done < len(wanted):
            done, special = self._loop.run(wanted, made, done)
            if special is not None and special.operation is not None:
                made.append(special.operation)
            elif special is not None:
                self._specials.append(special)
        return made

    async def rejected(self) -> None:
        """The rule's policy decides."""
        specials, self._specials = self._specials, []
        for special in specials:
            subject, _, _, payload = special.message
            await self._reject(
                int(sequence_of(special.message)), subject, special.header_block, payload, special.reason
            )

    async def refused(self, operation: Operation, verdict: Verdict) -> None:
        """The rule's policy decides."""
        reason = f"{verdict.description} ({verdict.err_code})"
        await self._reject(int(operation[0]), *taken_apart(operation[1]), reason)

    async def _reject(self, sequence: int, subject: bytes, block: bytes, payload: bytes, reason: str) -> None:
        origin = self._task.outcomes.plan.source.name
        await self._rejections.handle(Rejected(origin, sequence, subject, block, payload, reason))
