"""Publishing what is made of rows, round after round, until a stream has stored it all.

A round begins by asking the stream what it holds, and ends when it is unknown what was stored: then what was
made and is not known to be stored is sent again, as far as it is not there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Container
from dataclasses import dataclass
from typing import Protocol

import structlog

from nats_bridge.bridge.client.connection import Link
from nats_bridge.bridge.client.tasks import end_tasks
from nats_bridge.bridge.client.wire import Delivered
from nats_bridge.bridge.kinds.copying.counters import CopyCounters
from nats_bridge.bridge.kinds.copying.encoder import Operation
from nats_bridge.bridge.kinds.copying.last_sequence_probe import last_sequence_behind
from nats_bridge.bridge.kinds.copying.pub_ack import Verdict
from nats_bridge.bridge.kinds.copying.publisher import Publisher
from nats_bridge.bridge.kinds.copying.target import Target
from nats_bridge.bridge.observability.rule_metrics import Measures
from nats_bridge.pipeline.backfill.rows import KeptRows, Piece
from nats_bridge.pipeline.errors import DataLostError, PipelineError, UnreachableError

__all__ = ["Maker", "Place", "Rounds"]

_log = structlog.get_logger("pipeline.backfill")

_LOOK = 0.25  # seconds between two looks at whether something is in the way


class Maker(Protocol):
    """Makes operations of rows."""

    async def begin(self, link: Link, target: Target, last: int, confirmed: int) -> Container[int]:
        """A round begins: sequences behind `confirmed` that the target holds already, up to its sequence `last`."""

    def operations(self, batch: list[Delivered]) -> list[Operation]:
        """What is to be published for a batch, in its order, without what the target held when the round began."""

    async def rejected(self) -> None:
        """Decide about messages of the newest batch that cannot be published at all."""

    async def refused(self, operation: Operation, verdict: Verdict) -> None:
        """Decide about an operation that the target does not take: return to continue, or raise what ends the task."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where to publish.

    Attributes:
        rule: the rule's name, for messages.
        stream: the stream that stores it all.
        probe: a subject that it stores.
        patience: seconds for which it may be away or full.
    """

    rule: str
    stream: str
    probe: bytes
    patience: float


class Rounds:
    """Publishes rows.

    Args:
        place: where.
        link: the connection of that place.
        rows: what is published.
        maker: what makes operations of them.
        counters: where to count.
    """

    def __init__(self, place: Place, link: Link, rows: KeptRows, maker: Maker, counters: CopyCounters) -> None:
        self._place = place
        self._link = link
        self._rows = rows
        self._maker = maker
        self._counters = counters
        self._kept: deque[Operation] = deque()  # made, and not known to be stored
        self._confirmed = 0
        self._stored = ("", 0)  # which stream has confirmed it, and its last sequence then
        self._created = ""
        self._error: BaseException | None = None
        self._publisher: Publisher | None = None

    async def run(self) -> None:
        """Publish everything.

        Raises:
            UnreachableError: the server was away for too long.
            DataLostError: the stream does not hold any more what it has confirmed.
            PipelineError: the stream took nothing for too long.
            BridgeError: what the maker raises, or the server.
        """
        working = asyncio.create_task(self._work())
        watching = asyncio.create_task(self._without_obstacle())
        try:
            await asyncio.wait([working, watching], return_when=asyncio.FIRST_COMPLETED)
            for task in (working, watching):
                if task.done():
                    task.result()
        finally:
            await end_tasks(working, watching)

    async def _work(self) -> None:
        pieces = aiter(self._rows.behind(0))
        while True:
            await self._link.connected()
            publisher, there = await self._begin()
            try:
                if await self._publish(publisher, there, pieces):
                    return
            finally:
                confirmed, last = publisher.confirmed
                if confirmed > self._confirmed:
                    self._confirmed, self._stored = confirmed, (self._created, last)
                self._publisher = None
                await publisher.close()
            if self._error is not None:
                raise self._error

    async def _begin(self) -> tuple[Publisher, Container[int]]:
        place = self._place
        info = await self._link.api.stream_info(place.stream)
        target = Target.of(info, self._link.server_version)
        publisher = Publisher(
            self._link,
            target,
            self._counters,
            Measures(),
            self._maker.refused,
            lambda reason: _log.warning("backfill.interrupted", rule=place.rule, reason=reason),
            self._fail,
            rule=place.rule,
        )
        await publisher.open()
        try:
            last = await last_sequence_behind(self._link, place.stream, place.probe)
            self._check(target, last)
            publisher.begin(last)
            there = await self._maker.begin(self._link, target, last, self._confirmed)
        except BaseException:
            await publisher.close()
            raise
        self._created = target.created
        self._publisher = publisher
        return publisher, there

    def _check(self, target: Target, last: int) -> None:
        """See that the stream, which ends at sequence `last`, holds what it has confirmed."""
        created, confirmed_last = self._stored
        if self._confirmed and (created != target.created or last < confirmed_last):
            place = self._place
            raise DataLostError(
                f"rule '{place.rule}': stream '{place.stream}' was recreated, or lost messages, since the job began:"
                " run the backfill again"
            )

    async def _publish(self, publisher: Publisher, there: Container[int], pieces: AsyncIterator[Piece]) -> bool:
        """Whether everything is stored; else another round is needed."""
        self._forget(self._confirmed)
        left = [operation for operation in self._kept if int(operation[0]) not in there]
        self._counters.already_there += len(self._kept) - len(left)
        self._kept = deque(left)
        await self._send(publisher, left)
        while not publisher.over:
            try:
                piece = await anext(pieces)
            except StopAsyncIteration:
                await publisher.settled()
                return not publisher.over
            made = self._maker.operations(piece.messages())
            await self._maker.rejected()
            self._kept.extend(made)
            self._rows.stored(self._rows.last)  # kept as operations from now on
            await self._send(publisher, made)
        return False

    async def _send(self, publisher: Publisher, operations: list[Operation]) -> None:
        if operations and (waiting := publisher.send(operations)):
            await waiting
        self._forget(publisher.confirmed[0])

    def _forget(self, stored: int) -> None:
        while self._kept and int(self._kept[0][0]) <= stored:
            self._kept.popleft()

    def _fail(self, error: BaseException) -> None:
        self._error = error

    async def _without_obstacle(self) -> None:
        """Wait until something has been in the way for too long."""
        loop, place = asyncio.get_running_loop(), self._place
        free = loop.time()
        while True:
            await asyncio.sleep(_LOOK)
            waits = self._publisher is not None and self._publisher.waiting
            if self._link.client.is_connected and not waits:
                free = loop.time()
            elif loop.time() - free > place.patience:
                where = f"rule '{place.rule}': stream '{place.stream}'"
                if not self._link.client.is_connected:
                    raise UnreachableError(
                        f"{where}: its server is away for {place.patience:g} s: run the backfill again"
                    )
                raise PipelineError(
                    f"{where}: takes nothing for {place.patience:g} s: make room, and run the backfill again"
                )
