"""Reads which rows of a write the target has, headers only, and defines the `Nats-Msg-Id` of a row without one.

Message ids alone would let a row be stored twice once the stream has forgotten them (its `duplicate_window`). But
stored messages keep their ids, so rows of an earlier attempt can be found as long as they exist.

`spark-<write>-<batch>-<partition>-<row>-<check>`: the write (or the streaming query), the micro-batch (0 in a batch
write), the partition, the row's number in it from 0, and a checksum of the message. Another attempt gives the same rows
the same ids, as long as its input is the same and in the same order; the checksum shows when it is not.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from array import array
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from nats_bridge.client.jetstream_api import JetStreamApi, Json
from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.replay import Replay
from nats_bridge.consuming.stream_range import backwards, read_piece
from nats_bridge_spark.errors import PipelineError
from nats_bridge_spark.source.stream_state import removes_messages
from nats_transforms import header_block

_SHAPE = re.compile(rb"spark-([0-9a-f]{12})-([0-9]{1,18})-([0-9]{1,9})-([0-9]{1,18})-([0-9a-f]{8})")
_KEY_BYTES = 6


def write_key(name: str) -> bytes:
    """Return the part of the ids that identifies a write."""
    return hashlib.sha256(name.encode()).hexdigest()[: 2 * _KEY_BYTES].encode()


@dataclass(frozen=True, slots=True)
class RowPlace:
    """The place of a task's rows in the whole write.

    Attributes:
        batch: the micro-batch; 0 in a batch write.
    """

    write: bytes
    batch: int
    partition: int

    @property
    def prefix(self) -> bytes:
        """The beginning that the ids of its rows share."""
        return b"spark-%b-%d-%d-" % (self.write, self.batch, self.partition)


@dataclass(frozen=True, slots=True)
class RowId:
    """The contents of a generated id.

    Attributes:
        row: the row's number in the partition, from 0.
        check: CRC-32 of subject, headers and data.
    """

    place: RowPlace
    row: int
    check: int

    @classmethod
    def parse(cls, value: bytes | None) -> RowId | None:
        """Read a header value. Return None if it is not a generated id."""
        shape = _SHAPE.fullmatch(value) if value else None
        if shape is None:
            return None
        return cls(RowPlace(shape[1], int(shape[2]), int(shape[3])), int(shape[4]), int(shape[5], 16))


_ID = b"Nats-Msg-Id"
_LOOKS: Final = 20
"""Looks without a row of an earlier attempt, after which no more are taken to come."""
_LOOK: Final = 0.1
"""Seconds between two looks."""


@dataclass(slots=True)
class StoredRows:
    """The stored rows of one task.

    Attributes:
        ids: other ids, of all messages in the range; empty if rows have none.
        partitions: all partitions of the same write and batch with stored rows.
        removes: whether the stream's limits remove messages. Then a missing row before an existing one was stored and
            removed. If it were stored again, it would follow later ones, as the newest of its subject.
    """

    ids: set[bytes] = field(default_factory=set)
    partitions: set[int] = field(default_factory=set)
    found: int = 0
    removes: bool = False
    _highest: int = -1
    _there: bytearray = field(default_factory=bytearray)
    _checks: array[int] = field(default_factory=lambda: array("I"))

    def add(self, row: int, check: int) -> None:
        """Note that a row is stored, with this checksum."""
        if row >= len(self._there):
            more = max(row + 1 - len(self._there), len(self._there), 1024)
            self._there.extend(bytes(more))
            self._checks.frombytes(bytes(more * self._checks.itemsize))
        self.found += not self._there[row]
        self._there[row] = 1
        self._highest = max(self._highest, row)
        self._checks[row] = check

    def check_of(self, row: int) -> int | None:
        """Return the checksum of a stored row; None if it is not stored."""
        return self._checks[row] if row < len(self._there) and self._there[row] else None

    def was_removed(self, row: int) -> bool:
        """Return whether a missing row must have been stored before."""
        return self.removes and row < self._highest


def counts_consumers(info: Json) -> bool:
    """Return whether consumers decide which messages a stream keeps (work queue, interest)."""
    return bool(info["config"].get("retention", "limits") != "limits")


def _no_rows(info: Json) -> StoredRows:
    return StoredRows(removes=counts_consumers(info) or removes_messages(info["config"]))


async def read_range(api: JetStreamApi, info: Json, first: int, last: int, place: RowPlace, *, ids: bool) -> StoredRows:
    """Return the task's rows among messages first to last.

    Args:
        ids: whether to remember other ids.
    """
    found = _no_rows(info)
    await _add_range(found, api, info, first, last, place, ids=ids)
    return found


async def settle(
    found: StoredRows,
    api: JetStreamApi,
    info: Json,
    last: int,
    place: RowPlace,
    *,
    ids: bool,
    patience: float,
) -> None:
    """Add rows that another connection still has in flight, until the stream stores no more of them.

    A server stores messages that arrived on a connection even after the connection is closed, at the speed of its disk,
    and together with messages of other connections. So messages sent now would not come after them.

    Args:
        found: the rows stored up to `last`, which are extended.
        ids: whether rows have ids. It is unknown which of those are the task's, so any new one counts.
        patience: seconds, after which ids that still come are taken for others'.

    Raises:
        PipelineError: that cannot be seen, and the target does not remember ids for long enough.
    """
    stream, now = str(info["config"]["name"]), asyncio.get_running_loop().time
    begun = now()
    looks = 0
    while looks < _LOOKS:
        await asyncio.sleep(_LOOK)
        end = int((await api.stream_info(stream))["state"]["last_seq"])
        looks += 1  # not seconds: while the disk or the server hangs, there is no answer
        if end <= last:
            continue
        rows, foreign = found.found, len(found.ids)
        await _add_range(found, api, info, last + 1, end, place, ids=ids)
        last = end
        if found.found > rows:
            looks = 0
        elif len(found.ids) > foreign:
            looks = 0
            if now() > begun + patience:
                _require_window(info, patience)
                break


def _require_window(info: Json, seconds: float) -> None:
    config = info["config"]
    window = int(config.get("duplicate_window", 0)) / 1e9
    if window < seconds:
        raise PipelineError(
            f"stream '{config['name']}': other clients write to it, so it cannot be seen when all rows of an earlier"
            f" attempt are stored, and it remembers ids for {window:g} s only: give it a duplicate window of"
            f" {seconds:g} s or more, leave out the ids of the rows, or stop the other clients, and write again"
        )


async def _add_range(
    found: StoredRows, api: JetStreamApi, info: Json, first: int, last: int, place: RowPlace, *, ids: bool
) -> None:
    if first <= last:
        await read_piece(_replay(api, info), first, last, partial(_Rows, place, found, ids))


async def read_back(api: JetStreamApi, info: Json, first: int, last: int, place: RowPlace, *, ids: bool) -> StoredRows:
    """Return the task's rows of a micro-batch at the stream's end, reading backwards to an earlier batch.

    All messages of a batch follow all of the previous one, so none can be before that. The rows' own ids do not contain
    their batch; if all rows have one, the whole range is read. The arguments are those of `read_range`.
    """
    found = _no_rows(info)
    async for piece in backwards(_replay(api, info), first, last, partial(_Rows, place, found, ids)):
        if piece.taker.earlier:
            break
    return found


@dataclass(slots=True)
class _Rows:
    """Adds the task's rows among messages to `found`.

    Attributes:
        earlier: whether a message of an earlier batch is among them.
    """

    place: RowPlace
    found: StoredRows
    ids: bool
    earlier: bool = False

    def take(self, batch: list[Delivered]) -> None:
        place, found = self.place, self.found
        prefix, mine = b"spark-%b-" % place.write, place.prefix
        for _, _, block, _ in batch:
            value = header_block.read(block, _ID) if block else None
            if value is None:
                continue
            if not value.startswith(prefix):
                if self.ids:
                    found.ids.add(value)
                continue
            row = RowId.parse(value)
            if row is None:
                continue
            if value.startswith(mine):
                found.add(row.row, row.check)
            if row.place.batch < place.batch:
                self.earlier = True
            elif row.place.batch == place.batch:
                found.partitions.add(row.place.partition)


def _replay(api: JetStreamApi, info: Json) -> Replay:
    return Replay(api, str(info["config"]["name"]), headers_only=True, direct=counts_consumers(info))
