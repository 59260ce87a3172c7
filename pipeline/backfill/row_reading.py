"""An entry that copies rows: everything is the sidecar's own work, but that its messages come from a task's input."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from nats_bridge.bridge.client.tasks import end_tasks
from nats_bridge.bridge.consuming.lag import Standpoint
from nats_bridge.bridge.errors import RuleRefusedError
from nats_bridge.bridge.kinds.copying.entry import CopyEntry
from nats_bridge.bridge.kinds.copying.publisher import Publisher
from nats_bridge.bridge.kinds.copying.source import Reading
from nats_bridge.pipeline.backfill.column_copies import copies_of
from nats_bridge.pipeline.backfill.kept_rows import KeptRows
from nats_bridge.pipeline.backfill.rows import Piece
from nats_bridge.pipeline.errors import DataLostError

__all__ = ["RowEntry"]


class RowEntry(CopyEntry):
    """Copies rows; see `CopyEntry`.

    Args:
        rows: what is to be copied.
        first: the sequence at which the rows begin: the target is known to hold everything before it.
        created: when the origin was created, as `STREAM.INFO` told it when the job was planned.
        failed: called with the error that ends it.
        given: the other arguments of `CopyEntry`, by name.

    Attributes:
        finished: set when every row is stored, or skipped.
    """

    def __init__(
        self, rows: KeptRows, first: int, created: str, failed: Callable[[BaseException], None], **given: Any
    ) -> None:
        super().__init__(failed=failed, **given)
        self.finished = asyncio.Event()
        self._rows = rows
        self._first = first
        self._created = created
        self._told = failed

    def reading(self, publisher: Publisher, filters: tuple[str, ...]) -> Reading:
        """Who hands the rows on; see `CopyEntry`."""
        return _RowReading(self, publisher, self._rows, filters)

    def accept_rows(self, publisher: Publisher, piece: Piece) -> Awaitable[None] | None:
        """Copy rows that were read for the round of a publisher: in columns, if nothing asks for more care.

        Columns are not measured, nor traced: nobody looks at either in a task.
        """
        loop = self.loop_of(publisher)
        if loop is None:
            return None
        copies = copies_of(piece, loop) if self._keeper is None else None
        if copies is None:
            return self.accept(publisher, piece.messages())
        self._counters.received += len(piece)
        self._counters.unselected += len(piece) - len(copies)
        if copies:
            publisher.expect(b"%d" % copies.names[-1], 0)
        return publisher.send(copies)

    async def watch(self) -> None:
        """Nothing waits in a history."""

    def check(self, handled: int, created: str) -> None:
        """Whether the rows are those that the target lacks.

        Raises:
            RuleRefusedError: the origin is another one by now.
            DataLostError: the target lost messages since the job was planned, or since it has confirmed them.
        """
        if created != self._created:
            raise RuleRefusedError(
                f"rule '{self.plan.rule}': stream '{self.plan.source.name}' was recreated while its history was"
                " copied: run the backfill again"
            )
        held = max(self._first - 1, self._rows.forgotten)
        if handled < held:
            raise DataLostError(
                f"rule '{self.plan.rule}': stream '{self.plan.stream}' holds what comes from"
                f" '{self.plan.source.name}' up to sequence {handled}, and has held it up to {held} since the job was"
                " planned: run the backfill again"
            )

    def fail(self, error: BaseException) -> None:
        """End with an error."""
        self._told(error)


class _RowReading:
    """Hands rows to an entry, for one round (see `Reading`)."""

    attached = True
    waits_for = ""

    def __init__(self, entry: RowEntry, publisher: Publisher, rows: KeptRows, filters: tuple[str, ...]) -> None:
        self.handled = 0
        self._entry = entry
        self._publisher = publisher
        self._rows = rows
        self._filters = filters
        self._created = ""
        self._feeding: asyncio.Task[None] | None = None

    @property
    def has_work(self) -> bool:
        """Whether rows are left."""
        return self._feeding is not None and not self._feeding.done()

    @property
    def standpoint(self) -> Standpoint:
        """Where it stands."""
        return Standpoint(self._entry.plan.source.name, self._created, self._filters, self.handled)

    async def open(self, handled: int, created: str) -> None:
        """Begin behind a sequence."""
        self._entry.check(handled, created)
        self.handled, self._created = handled, created
        self._feeding = asyncio.create_task(self._feed())

    async def not_taken(self) -> int | None:
        """Unknown."""
        return None

    async def abandon(self, *, held: bool) -> None:
        """Stop; rows that are not stored are kept for the next round, whether they were `held` or not."""
        await end_tasks(self._feeding)

    async def end_at_once(self) -> None:
        """Stop."""
        await end_tasks(self._feeding)

    async def _feed(self) -> None:
        entry, publisher, rows = self._entry, self._publisher, self._rows
        try:
            async for piece in rows.behind(self.handled):
                if waiting := entry.accept_rows(publisher, piece):
                    await waiting
                if publisher.over:
                    return  # the next round begins, or an error ended it all
                rows.stored(publisher.confirmed[0])
            await publisher.settled()
            if not publisher.over:
                entry.finished.set()
        except Exception as error:
            entry.fail(error)
