"""Copies a history into the target, as the sidecar does.

Theory of operation. The job uses the sidecar's own entry, with another reader that passes it the history instead of a
consumer's deliveries. Each round of an entry begins with the copies in the target, and the reader begins there. So the
target contains the only state, and message ids only have to last for messages in flight.
"""

import asyncio
import contextlib
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import Json
from nats_bridge.client.permission_violations import refused_publication
from nats_bridge.client.stream_identity import Bounds, KnownStream
from nats_bridge.client.tasks import end_tasks
from nats_bridge.client.waiting import CLOSING, FOUR_A_SECOND
from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.ack_reply import AckReply
from nats_bridge.consuming.lag import StreamPosition
from nats_bridge.errors import RuleRefusedError
from nats_bridge.kinds.copying.counters import CopyCounters
from nats_bridge.kinds.copying.entry import CopyEntry, EntryContext, EntryPlan
from nats_bridge.kinds.copying.round import Round
from nats_bridge.observability.rule_metrics import RuleMetrics
from nats_bridge_spark.backfill.history import MessageHistory, deliveries
from nats_bridge_spark.errors import DataLostError, PipelineError, UnreachableError
from nats_bridge_spark.row_bundle import pieces

_READ_AHEAD: Final = 8
"""Batches that are read before the ones before them are handed on."""
PATIENCE: Final = 60.0
"""Seconds for which a server may be down, or the target full, before the copy ends."""


@dataclass(slots=True)
class HistoryCopy:
    """The copying of one history into the target.

    Attributes:
        held: the source's sequence up to which the target has confirmed everything.
        read: the number of messages that were handed on, each counted once.
        handed: the sequence of the last one.
    """

    plan: EntryPlan
    history: MessageHistory
    known: KnownStream
    held: int
    counters: CopyCounters = field(default_factory=CopyCounters)
    read: int = 0
    handed: int = 0
    _over: asyncio.Future[None] = field(init=False)

    async def run(self, source: Connection, target: Connection) -> None:
        """Copy it, or raise a `BridgeError` if the copy cannot continue. Messages copied so far stay."""
        over = self._over = asyncio.get_running_loop().create_future()
        reader = partial(_HistoryReader, self)
        context = EntryContext(self.plan, source, target, self.counters, RuleMetrics(), make_reader=reader)
        entry = CopyEntry(context, self.end)
        target.on_end(lambda reason: self.end(UnreachableError(f"the target's server ended the connection: {reason}")))
        target.on_refusal(self._refused)
        watching = asyncio.create_task(self._watch(entry, source, target))
        try:
            await entry.start()
            await over
            await entry.stop()
        finally:
            await end_tasks(watching)
            if over.done():
                over.exception()
            await entry.abandon()

    def end(self, error: BaseException | None = None) -> None:
        """End the copy, with an error or because everything is stored."""
        if not self._over.done():
            self._over.set_result(None) if error is None else self._over.set_exception(error)

    def check(self, handled: int, info: Json) -> None:
        """Check that a round begins at the expected place.

        Args:
            handled: the source's sequence up to which the target has everything.

        Raises:
            RuleRefusedError: the source is another one by now.
            DataLostError: the target lost messages since the job was planned, or since it has confirmed them.
        """
        plan = self.plan
        if self.known.differs(str(info["created"]), Bounds.of(info)):
            raise RuleRefusedError(
                f"rule '{plan.rule}': stream '{plan.source.name}' was recreated while its history was copied: run the"
                " backfill again"
            )
        if handled < self.held:
            raise DataLostError(
                f"rule '{plan.rule}': stream '{plan.stream}' holds what comes from '{plan.source.name}' up to sequence"
                f" {handled}, and has held it up to {self.held} since the job was planned: run the backfill again"
            )

    def note(self, batch: list[Delivered]) -> None:
        """Count messages that are handed on, each once."""
        self.read += len(batch) - bisect_right(batch, self.handed, key=_sequence)
        self.handed = max(self.handed, _sequence(batch[-1]))

    def _refused(self, text: str) -> None:
        # Without permission to listen to other writers everything works, but slower.
        if refused_publication(text):
            why = f"the server refuses a publication ({text}): allow the user to publish to the rule's destinations"
            self.end(PipelineError(f"rule '{self.plan.rule}': {why}"))

    async def _watch(self, entry: CopyEntry, source: Connection, target: Connection) -> None:
        """End it when an obstacle has lasted too long."""
        loop = asyncio.get_running_loop()
        free = loop.time()
        place = f"rule '{self.plan.rule}': stream '{self.plan.stream}'"
        while True:
            await asyncio.sleep(FOUR_A_SECOND)
            is_there = target.client.is_connected and source.client.is_connected
            if is_there and entry.obstacle is None:
                free = loop.time()
            elif loop.time() - free > PATIENCE:
                if is_there:
                    why = f"{place}: waited {PATIENCE:g} s for {entry.obstacle}: run the backfill again then"
                    return self.end(PipelineError(why))
                whose = "its" if source.client.is_connected else "its source's"
                why = f"{place}: {whose} server is away for {PATIENCE:g} s: run the backfill again"
                return self.end(UnreachableError(why))


class _HistoryReader:
    """Hands a history to an entry, for one round (see `SourceReader`)."""

    attached = True
    waits_for = ""

    def __init__(self, copy: HistoryCopy, sink: Round, filters: tuple[str, ...]) -> None:
        self.handled = 0
        self._copy = copy
        self._round = sink
        self._filters = filters
        self._known = KnownStream("")
        self._read = asyncio.Queue[list[Delivered] | None](_READ_AHEAD)
        self._tasks: tuple[asyncio.Task[None], ...] = ()  # that read, and hand on

    @property
    def has_work(self) -> bool:
        return any(not task.done() for task in self._tasks)

    @property
    def stream_position(self) -> StreamPosition:
        return StreamPosition(self._copy.plan.source.name, self._known, self._filters, self.handled)

    async def open(self, handled: int, info: dict[str, Any]) -> None:
        self._copy.check(handled, info)
        self._known, self.handled = KnownStream.of(info), handled
        self._tasks = asyncio.create_task(self._reading()), asyncio.create_task(self._feed())

    async def undelivered(self) -> int | None:
        return None

    async def abandon(self, *, unwritten: bool) -> None:
        """Stop. The next round reads messages that are not stored again."""
        await self.end_at_once()
        self._copy.held = max(self._copy.held, self._round.publisher.confirmed[0])

    async def end_at_once(self) -> None:
        if self._tasks:
            reading, feeding = self._tasks
            await end_tasks(feeding)
            reading.cancel()  # once, so that it closes its connection
            await asyncio.wait([reading], timeout=CLOSING)
            await end_tasks(reading)

    async def _reading(self) -> None:
        try:
            async with contextlib.aclosing(self._copy.history.rows(self.handled + 1)) as batches:
                async for batch in batches:
                    for piece in pieces(batch):
                        await self._read.put(deliveries(piece))
            await self._read.put(None)
        except Exception as error:
            self._copy.end(error)

    async def _feed(self) -> None:
        copy, publisher = self._copy, self._round.publisher
        try:
            while (batch := await self._read.get()) is not None:
                if publisher.stopped_sending:
                    return  # the next round begins, or an error ended it all
                copy.note(batch)
                if waiting := self._round.accept(batch):
                    await waiting
            await publisher.settled()
            if not publisher.stopped_sending:
                self._copy.end(None)
        except Exception as error:
            self._copy.end(error)


def _sequence(message: Delivered) -> int:
    return AckReply.parse(message[1]).stream_sequence
