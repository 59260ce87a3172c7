"""Reads which rows of a write the target has, headers only, and defines the `Nats-Msg-Id` of a row without one.

Message ids alone would let a row be stored twice once the stream has forgotten them (its `duplicate_window`). But
stored messages keep their ids, so rows of an earlier attempt can be found as long as they exist.

`spark-<write>-<batch>-<partition>-<row>-<check>`: a hash of the write's name (or of the streaming query's id), the
micro-batch, the partition, the row's number in it from 0, and the CRC-32 of subject, headers and payload. Another
attempt gives the same rows the same ids, as long as its input is the same and in the same order; the check shows when
it is not.
"""

import asyncio
import hashlib
import re
from array import array
from dataclasses import dataclass, field
from itertools import repeat
from typing import Final

from nats_bridge.client.jetstream_api import JetStreamApi, Json
from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.replay import Replay
from nats_bridge.consuming.stream_range import backwards, read_piece
from nats_bridge.observability.printable import printable
from nats_bridge_spark.errors import PipelineError, RowError
from nats_bridge_spark.sink.plan import WritePlan
from nats_bridge_spark.source.stream_state import removes_messages
from nats_transforms import header_block

GENERATED: Final = re.compile(
    rb"spark-[0-9a-f]{12}-(?P<batch>[0-9]{1,18})-[0-9]{1,9}-(?P<row>[0-9]{1,18})-(?P<check>[0-9a-f]{8})"
)
"""A generated id."""


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """The identity of a Spark task, and the place of its rows in the whole write.

    Attributes:
        attempt: 0 for the first one, as Spark counts: a retried stage restarts at 0.
        write: the name of the write, or the id of the streaming query.
        batch: the micro-batch; 0 in a batch write.
    """

    partition: int
    attempt: int = 0
    write: str = ""
    batch: int = 0

    @property
    def prefix_of_write(self) -> bytes:
        """The beginning that the generated ids of the write share."""
        return b"spark-%b-" % hashlib.sha256(self.write.encode()).hexdigest()[:12].encode()

    @property
    def prefix(self) -> bytes:
        """The beginning that the generated ids of the task share."""
        return b"%b%d-%d-" % (self.prefix_of_write, self.batch, self.partition)

    def wrong(self, row: int, why: str, subject: bytes | None = None) -> RowError:
        """Return the error for a row, which is known by its number and perhaps its subject."""
        about = "" if subject is None else f" (subject '{said(subject)}')"
        return RowError(f"row {row} of partition {self.partition}{about}: {why}")


def said(text: bytes) -> str:
    """Return a part of a message as an error shows it."""
    return printable(text.decode("utf-8", "replace"))[:200]


_ID = b"Nats-Msg-Id"
_LOOKS: Final = 20  # without a row of an earlier attempt, after which no more are taken to come
_LOOK: Final = 0.1  # seconds between two looks


@dataclass(slots=True)
class StoredRows:
    """The rows of a task that the stream has, as far as its messages were read.

    Attributes:
        keeps_ids: whether to remember other ids.
        removes: whether the stream's limits remove messages. Then a missing row before an existing one was stored and
            removed. If it were stored again, it would follow later ones, as the newest of its subject.
        ids: other ids, of all messages that were read.
        found: the number of rows.
        earlier: whether a message of an earlier batch was read.
    """

    place: TaskPlace
    keeps_ids: bool = False
    removes: bool = False
    ids: set[bytes] = field(default_factory=set)
    found: int = 0
    earlier: bool = False
    _checks: "array[int]" = field(default_factory=lambda: array("q"))  # by row; -1 for none

    def take(self, batch: list[Delivered]) -> None:
        """Note the rows among messages, which may have been read before."""
        of_write, of_task = self.place.prefix_of_write, self.place.prefix
        for _, _, block, _ in batch:
            value = header_block.read(block, _ID) if block else None
            if value is None:
                continue
            if not value.startswith(of_write):
                if self.keeps_ids:
                    self.ids.add(value)
            elif generated := GENERATED.fullmatch(value):
                if value.startswith(of_task):
                    self.add(int(generated["row"]), int(generated["check"], 16))
                self.earlier |= int(generated["batch"]) < self.place.batch

    def add(self, row: int, check: int) -> None:
        """Note that a row is stored, with this checksum."""
        self._checks.extend(repeat(-1, row + 1 - len(self._checks)))
        self.found += self._checks[row] < 0
        self._checks[row] = check

    def check_of(self, row: int) -> int | None:
        """Return the checksum of a stored row; None if it is not stored."""
        check = self._checks[row] if row < len(self._checks) else -1
        return None if check < 0 else check

    def was_removed(self, row: int) -> bool:
        """Return whether a missing row must have been stored before."""
        return self.removes and row < len(self._checks) - 1

    def has(self, block: bytes) -> bool:
        """Return whether the message with this header block is, or was, stored."""
        message_id = header_block.read(block, _ID) or b""
        generated = GENERATED.fullmatch(message_id)
        if generated is None:
            return message_id in self.ids
        row = int(generated["row"])
        return self.check_of(row) == int(generated["check"], 16) or self.was_removed(row)


class RowSearch:
    """Searches a stream for the rows of a task."""

    def __init__(self, api: JetStreamApi, info: Json, plan: WritePlan, place: TaskPlace) -> None:
        self._config = info["config"]
        counts_consumers = self._config.get("retention", "limits") != "limits"  # a work queue, or interest
        self._replay = Replay(api, str(self._config["name"]), headers_only=True, direct=counts_consumers)
        self._removes = counts_consumers or removes_messages(self._config)
        self._plan = plan
        self._place = place

    async def rows(self, first: int, last: int) -> StoredRows:
        """Return the rows among messages first to last, reading backwards from the stream's end to an earlier batch.

        All messages of a batch follow all of the previous one, so none can be before that. The rows' own ids do not
        contain their batch; if all rows have one, the whole range is read.
        """
        found = StoredRows(self._place, self._plan.layout.brings_ids, self._removes)
        async for _ in backwards(self._replay, first, last, lambda: found):
            if found.earlier:
                break
        return found

    async def settle(self, found: StoredRows, last: int) -> None:
        """Add rows that another connection still has in flight, until the stream stores no more of them.

        A server stores messages that arrived on a connection even after the connection is closed, at the speed of its
        disk, and together with messages of other connections. So messages sent now would not come after them. It is
        unknown which ids are the task's, so any new one counts, until the patience of the write has passed.

        Args:
            found: the rows stored up to `last`, which are extended.

        Raises:
            PipelineError: that cannot be seen, and the stream does not remember ids for long enough.
        """
        now, patience = asyncio.get_running_loop().time, self._plan.options.patience
        begun = now()
        looks = 0
        while looks < _LOOKS:
            await asyncio.sleep(_LOOK)
            end = int((await self._replay.api.stream_info(self._replay.stream))["state"]["last_seq"])
            looks += 1  # not seconds: while the disk or the server hangs, there is no answer
            if end <= last:
                continue
            rows, foreign = found.found, len(found.ids)
            await read_piece(self._replay, last + 1, end, lambda: found)
            last = end
            if found.found > rows:
                looks = 0
            elif len(found.ids) > foreign:
                looks = 0
                if now() > begun + patience:
                    self._require_window(patience)
                    return

    def _require_window(self, patience: float) -> None:
        window = int(self._config.get("duplicate_window", 0)) / 1e9
        if window < patience:
            raise PipelineError(
                f"stream '{self._replay.stream}': other clients write to it, so it cannot be seen when all rows of an"
                f" earlier attempt are stored, and it remembers ids for {window:g} s only: give it a duplicate window"
                f" of {patience:g} s or more, leave out the ids of the rows, or stop the other clients, and write again"
            )
