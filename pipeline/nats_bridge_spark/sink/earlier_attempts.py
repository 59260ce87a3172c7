"""Finds out which of a task's rows an earlier attempt has stored.

Spark repeats a failed task, and numbers the attempt. The stream may still store messages that the failed one had in
flight, so the next attempt waits for them. Spark gives no sign when a whole stage is repeated (shuffle files were lost)
or a query is restarted. So a first attempt also looks, if that costs little:

* an ordered or repeated write reads the messages stored since it was planned;
* a parallel write sends its first row alone. While the stream remembers ids, the answer shows whether there was an
  earlier attempt. After that time, each worker process reads the messages of the write, once and as they arrive, to
  know which partitions were begun;
* a task of a micro-batch reads the stream's last message. After a message of an earlier batch, there is nothing to
  find. A worker that has seen an earlier batch of the same run knows that its next one is not a repetition.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeAlias

from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import Json
from nats_bridge.consuming.replay import Replay
from nats_bridge.kinds.copying.target import Target
from nats_bridge_spark.sink.plan import TaskPlace, WritePlan
from nats_bridge_spark.sink.stored_rows import RowId, RowPlace, RowSearch, StoredRows
from nats_transforms import header_block

Look: TypeAlias = Literal["nothing", "read", "ask"]
"""Nothing can be stored; or the stream must be read; or the answer to the first row shows it."""

_MOST_KNOWN: Final = 64


@dataclass(slots=True)
class _Begun:
    """The part of a write that a worker process has read: the last sequence, and the partitions with stored rows."""

    read: int
    partitions: set[int]


_begun: OrderedDict[tuple[bytes, str], _Begun] = OrderedDict()
_seen_runs: OrderedDict[tuple[str, str], int] = OrderedDict()


@dataclass(frozen=True, slots=True)
class EarlierAttempts:
    """The known earlier attempts at a task."""

    plan: WritePlan
    task: TaskPlace
    place: RowPlace
    connection: Connection

    async def look(self, info: Json, last: int) -> Look:
        """Return how to find out which rows are stored."""
        plan, task = self.plan, self.task
        if task.attempt:
            return "read"  # even if nothing is stored yet, because all of it may be in flight
        if last < await self.first(info):
            return "nothing"
        if plan.streaming:
            return await self._look_in_stream(last)
        if plan.repeats or plan.options.ordered:
            return "read"
        if time.time() - plan.planned_at < Target.of(info, self.connection.server_version).window_ns / 2e9:
            return "ask"
        return "read" if task.partition in await self._partitions_begun(info, last) else "nothing"

    async def stored(self, info: Json, last: int) -> StoredRows:
        """Return the task's rows in the target, after waiting for everything that an earlier attempt had in flight.

        Raises:
            PipelineError: that cannot be seen (see `RowSearch.settle`).
        """
        plan = self.plan
        search = RowSearch(self.connection.api, info, self.place, ids=plan.layout.brings_ids)
        read = search.backwards if plan.streaming else search.between
        found = await read(await self.first(info), last)
        if self.task.attempt or found.found or (found.ids and (plan.streaming or plan.repeats)):
            await search.settle(found, last, plan.options.patience)
        return found

    async def first(self, info: Json) -> int:
        """Return the first sequence at which an earlier attempt can have stored a row."""
        first = max(int(info["state"]["first_seq"]), 1)
        if self.plan.after is not None:
            return max(self.plan.after + 1, first)
        if self.plan.options.look_back is None:
            return first
        since = datetime.now(UTC) - timedelta(seconds=self.plan.options.look_back)
        return max(await Replay(self.connection.api, self.plan.options.stream).before(since.isoformat()) + 1, first)

    def remember(self) -> None:
        """Note that the task is done.

        A worker that has come this far in a run of a query will see no repetition in it.
        """
        if self.plan.streaming:
            _seen_runs[self.task.query, self.task.run] = self.task.batch
            while len(_seen_runs) > _MOST_KNOWN:
                _seen_runs.popitem(last=False)

    async def _look_in_stream(self, last: int) -> Look:
        newest = await self.connection.api.stored_message(self.plan.options.stream, last)
        known = RowId.parse(header_block.read(newest.header_block, b"Nats-Msg-Id")) if newest else None
        if known is not None and known.place.write == self.place.write and known.place.batch < self.place.batch:
            return "nothing"
        if _seen_runs.get((self.task.query, self.task.run), self.task.batch) >= self.task.batch:
            return "read"
        return "ask"

    async def _partitions_begun(self, info: Json, last: int) -> set[int]:
        key = (self.place.write, str(info["created"]))
        begun = _begun.setdefault(key, _Begun(await self.first(info) - 1, set()))
        _begun.move_to_end(key)
        while len(_begun) > _MOST_KNOWN:
            _begun.popitem(last=False)
        if last > begun.read:
            search = RowSearch(self.connection.api, info, replace(self.place, partition=-1), ids=False)
            begun.partitions |= (await search.between(begun.read + 1, last)).partitions
            begun.read = last
        return begun.partitions
