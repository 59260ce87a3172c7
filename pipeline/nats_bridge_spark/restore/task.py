"""Gives a stream its captured messages, each under its own sequence.

Theory of operation. The stream numbers its messages in order, so a message gets its sequence if it is published when
everything before it is stored. If a sequence is missing, a filler takes it, on a subject that is purged later. The
stream contains the only state: each round begins after its last sequence. Before that, it changes the stream's
subjects, so messages of an earlier round in flight can no longer be stored, and the last sequence is final. A message
that the stream refuses shifts those in flight after it. The publisher notices that, and so does the next round: it
compares the end of the stream with the capture before it continues.
"""

import asyncio
import contextlib
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import Json
from nats_bridge.client.stream_identity import Bounds, KnownStream
from nats_bridge.client.waiting import LEADER_AWAY
from nats_bridge.consuming.ack_reply import AckReply
from nats_bridge.consuming.replay import Replay
from nats_bridge.consuming.stream_range import messages
from nats_bridge.errors import ApiError
from nats_bridge.kinds.copying.position.entry_streams import last_sequence_after_sent
from nats_bridge.kinds.copying.target import Target
from nats_bridge.kinds.copying.writing.in_flight import LEAST
from nats_bridge_spark.backfill.history import MessageHistory
from nats_bridge_spark.errors import DataLostError, PipelineError, RowError, UnreachableError
from nats_bridge_spark.restore.configuration import (
    FILLER,
    WINDOW,
    RestoreMark,
    probe_of,
    restoring_config,
)
from nats_bridge_spark.restore.sequenced_publishing import InterruptedPublishingError, publishing
from nats_bridge_spark.row_bundle import RowBundle, constant, joined, pieces
from nats_bridge_spark.source.stream_state import stream_info
from nats_bridge_spark.subject_batch import by_subject
from nats_transforms import header_block
from nats_transforms.republish import unpublishable
from nats_transforms.source_record import HEADER, TWIN_HEADER
from nats_transforms.sourcing import Sourcing

CHECKED: Final = 2 * LEAST
"""Sequences at the end of the stream that are compared with the capture before it continues: more than in flight."""

_FILLERS: Final = 1 << 19  # in the stream before they are purged, at most
_PIECE: Final = 2048  # messages and fillers that are published together, at most
_SUBJECTS: Final = 1 << 16  # whose destinations are remembered
_PATIENCE: Final = 60.0  # seconds without progress after which the restore ends
_IDS: Final = 1 << 18  # of messages that are sent before it waits until the stream has forgotten them
_ID: Final = b"Nats-Msg-Id"
_UNLIKELY: Final = {"Nats-Expected-Last-Msg-Id": "nats-bridge stores nothing"}
_WRONG_LAST_ID: Final = 10070
"""The answer to a message with that header, unless its id makes it a duplicate: checked before that (2.10 to 2.15)."""

_NOTHING: Final = RowBundle([], *(pa.array([], pa.binary()) for _ in range(3)))

_Stored: TypeAlias = tuple[bytes, bytes, bytes]
"""A message's subject, header block and payload."""


@dataclass(frozen=True, slots=True)
class _Selected:
    """Rows as they are to be stored.

    Attributes:
        messages: the selected ones, under their own subjects.
        ids: message ids, by the place of their message.
        changed: the sequences of messages whose headers could not be given back as they were.
    """

    messages: RowBundle
    ids: dict[int, bytes]
    sequences: list[int]
    changed: list[int]


@dataclass
class StreamRestore:
    """The restore of one stream.

    Attributes:
        history: the captured messages; they end with the last sequence of the stream.
        counts: the numbers of messages that were `restored`, `unselected` and `changed`.
        reached: the last sequence that the stream has.
    """

    connection: Connection
    config: Json
    mark: RestoreMark
    sourcing: Sourcing | None
    history: MessageHistory
    known: KnownStream
    counts: dict[str, int] = field(default_factory=lambda: {"restored": 0, "unselected": 0, "changed": 0})
    reached: int = 0
    _counted: int = 0  # the last sequence that counts have
    _fillers: int = 0  # that the stream may contain

    def __post_init__(self) -> None:
        self._stream = str(self.config["name"])
        self._probe = probe_of(self._stream)
        self._is_random = self.sourcing is not None and any(part.is_random for part in self.sourcing.transforms)
        self._destination = self._new_destination if self._is_random else lru_cache(_SUBJECTS)(self._new_destination)

    async def run(self) -> None:
        """Restore the messages.

        Raises:
            RowError: the stream does not take a message.
            DataLostError: the stream differs from the capture, or was recreated.
            UnreachableError: the server is away for longer than the patience allows.
            PipelineError: another process has changed it.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + _PATIENCE
        while True:
            before = self.reached
            try:
                return await self._round()
            except (InterruptedPublishingError, ApiError) as error:
                if isinstance(error, ApiError) and not error.passing:
                    raise
                if self.reached > before:
                    until = loop.time() + _PATIENCE
                why = str(error)
            try:
                async with asyncio.timeout_at(until):
                    await LEADER_AWAY.pause()
                    await self.connection.connected()
            except TimeoutError:
                raise UnreachableError(
                    f"stream '{self._stream}' at {', '.join(self.connection.servers)} takes nothing for {_PATIENCE:g} s"
                    f" ({why}); run the restore again"
                ) from None

    async def _round(self) -> None:
        """Go from the present end of the stream to the end of the history, or to an interruption."""
        api = self.connection.api
        info = await stream_info(self.connection, self._stream)
        if self.known.differs(str(info["created"]), Bounds.of(info)):
            raise DataLostError(f"stream '{self._stream}' was recreated while it was restored: run the restore again")
        if RestoreMark.of(info["config"]) != (self.mark, None):
            raise PipelineError(f"stream '{self._stream}': was changed by another process while it was restored")
        config = restoring_config(self.config, self.mark)
        info = await api.request(f"STREAM.UPDATE.{self._stream}", config)
        self._prefix = constant(config["subjects"][0].removesuffix(">").encode())
        self._target = Target.of(info, self.connection.server_version)
        last = await last_sequence_after_sent(self.connection, self._stream, self._probe.encode())
        if last < self.reached:
            raise DataLostError(
                f"stream '{self._stream}' has lost messages that it had stored: it ends at sequence {last}, and ended"
                f" at {self.reached}; run the restore again"
            )
        self.reached = last
        await self._purge_fillers()
        held = await self._end_of_stream(last)
        self._ids: dict[bytes, None] = {}  # that the stream may remember, in the order of sending
        self._next = last + 1
        async with publishing(self.connection, self._stream, last) as self._publishing:
            try:
                async with contextlib.aclosing(self.history.rows(max(1, last - CHECKED + 1))) as batches:
                    async for batch in batches:
                        for piece in pieces(batch):
                            rows = self._selected(piece)
                            self._compare(rows, last, held)
                            self._count(rows, last)
                            await self._publish(rows)
                            self.reached = self._publishing.confirmed
                await self._send(_NOTHING, self.history.last + 1)
                await self._publishing.settled()
            finally:
                self.reached = self._publishing.confirmed
        await self._purge_fillers()

    async def _end_of_stream(self, last: int) -> dict[int, _Stored]:
        """Return the messages at the stream's end by sequence, after waiting until their ids are forgotten."""
        held, newest_id = dict[int, _Stored](), b""
        replay = Replay(self.connection.api, self._stream)
        async for subject, reply, block, payload in messages(replay, max(1, last - CHECKED + 1), last):
            held[AckReply.parse(reply).stream_sequence] = (subject, block, payload)
            newest_id = header_block.read(block, _ID) or newest_id
        if newest_id:
            await self._forgotten(newest_id)
        return held

    # -- rows --------------------------------------------------------------------------------------------------------

    def _selected(self, rows: pa.RecordBatch) -> _Selected:
        subjects, sequences, _, blocks, payloads = rows.columns
        numbers: list[int] = sequences.to_pylist()
        subjects = by_subject(self._destination, subjects, pa.binary(), varies=self._is_random)
        blocks, payloads = blocks.fill_null(b""), payloads.fill_null(b"")
        wanted = subjects.is_valid()
        subjects, blocks, payloads = (each.filter(wanted) for each in (subjects, blocks, payloads))
        names = sequences.filter(wanted).to_pylist()
        ids: dict[int, bytes] = {}
        changed: list[int] = []
        marked = np.flatnonzero(pc.match_substring(blocks, "Nats-"))
        if len(marked):
            texts: list[bytes] = blocks.to_pylist()
            for at in marked.tolist():
                travelling = self._travelling(texts[at])
                if travelling != texts[at]:
                    changed.append(names[at])
                    texts[at] = travelling
                if message_id := header_block.read(travelling, _ID):
                    ids[at] = message_id
            blocks = pa.array(texts, pa.binary())
        messages = RowBundle(names, subjects, blocks, payloads)
        limit = self.connection.client.max_payload
        if above := messages.first_above(limit):
            at, total = above
            raise RowError(
                f"message {names[at]}: has {total} bytes, more than the {limit} that the server takes (max_payload)"
            )
        return _Selected(messages, ids, numbers, changed)

    def _new_destination(self, subject: bytes) -> bytes | None:
        """Return the destination of a message; None for an unselected one."""
        destination = subject if self.sourcing is None else self.sourcing.destination(subject)
        code = None if destination is None else unpublishable(destination)
        # A stream of advisories receives its own ones.
        if destination and code is not None and (code, destination[:10]) != ("reserved", b"$JS.EVENT."):
            source, refused = (text.decode("utf-8", "replace") for text in (subject, destination))
            raise RowError(f"subject '{source}': nothing can be published on '{refused}'")
        return destination

    def _travelling(self, block: bytes) -> bytes:
        """Return a header block without headers that the stream would refuse, or act on as in a new message."""
        if self._target.record_header == TWIN_HEADER:
            block = block.replace(b"\n" + HEADER + b":", b"\n" + TWIN_HEADER + b":")
        block = header_block.remove_prefix(header_block.remove(block, b"Nats-Request-Info"), b"Nats-Batch-")
        return self._target.with_renamed(self._target.without_withheld(block))

    def _count(self, rows: _Selected, after: int) -> None:
        """Count rows after a sequence, each once."""
        after = max(after, self._counted)
        new = len(rows.messages.behind(after))
        self.counts["restored"] += new
        self.counts["unselected"] += len(rows.sequences) - bisect_right(rows.sequences, after) - new
        self.counts["changed"] += len(rows.changed) - bisect_right(rows.changed, after)
        self._counted = max(self._counted, rows.sequences[-1])

    def _compare(self, rows: _Selected, last: int, held: dict[int, _Stored]) -> None:
        if self._is_random or rows.sequences[0] > last:
            return
        messages = rows.messages
        columns = (messages.subjects, messages.blocks, messages.payloads)
        expected = dict(zip(messages.names, zip(*(each.to_pylist() for each in columns), strict=True), strict=True))
        for sequence in rows.sequences:
            stored = held.get(sequence)  # None: a limit or a rollup has removed it
            if sequence <= last and stored is not None and stored != expected.get(sequence):
                raise DataLostError(
                    f"stream '{self._stream}': holds another message than the capture under sequence {sequence}, left"
                    " by a restore that failed: delete the stream, and restore it again"
                )

    # -- publishing --------------------------------------------------------------------------------------------------

    async def _publish(self, rows: _Selected) -> None:
        """Publish the messages that the stream lacks. Wait before an id that it would take for a duplicate."""
        ids, start = self._ids, 0
        for at, message_id in rows.ids.items():
            if rows.messages.names[at] < self._next:
                continue
            if message_id in ids or len(ids) == _IDS:
                await self._send(rows.messages.between(start, at), rows.messages.names[at])
                start = at
                await self._publishing.settled()
                if message_id in ids:
                    await self._forgotten(message_id)
                    del ids[message_id]
                else:
                    await self._forgotten(next(reversed(ids)))
                    ids.clear()
            ids[message_id] = None
        if rows.messages:
            await self._send(rows.messages.between(start, len(rows.messages)), rows.messages.names[-1] + 1)

    async def _send(self, messages: RowBundle, end: int) -> None:
        """Publish everything from the next sequence up to `end`, exclusive: messages, and fillers between them."""
        while self._next < end:
            numbers = range(self._next, min(self._next + _PIECE, end))
            messages = messages.behind(numbers.start - 1)
            some = messages.between(0, bisect_left(messages.names, numbers.stop))
            if len(some) < len(numbers):
                self._fillers += len(numbers) - len(some)
                some = some.spread(numbers, (FILLER.encode(), b"", b""))
            addressed = joined(self._prefix, some.subjects)
            await self._publishing.send(RowBundle(some.names, addressed, some.blocks, some.payloads))
            self._next = numbers.stop
            if self._fillers >= _FILLERS:
                await self._publishing.settled()
                await self._purge_fillers()

    async def _purge_fillers(self) -> None:
        await self.connection.api.request(f"STREAM.PURGE.{self._stream}", {"filter": FILLER})
        self._fillers = 0

    async def _forgotten(self, message_id: bytes) -> None:
        """Wait until the stream does not take a message with this id for a duplicate."""
        headers = {**_UNLIKELY, _ID.decode(): message_id.decode("utf-8", "replace")}
        while True:
            try:
                await self.connection.api.store(self._probe, b"", headers)
            except ApiError as error:
                if error.err_code != _WRONG_LAST_ID:
                    raise
                return
            await asyncio.sleep(WINDOW / 4)
