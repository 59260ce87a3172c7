"""Publishes a captured stream's rows into the stream that is restored, each under its own sequence.

Theory of operation. The stream stores nothing but what this publishes (`configuration`), one message after the other,
with a filler for each sequence that is missing. So its last sequence says up to where it is restored. Each round begins
with another generation of subjects: whatever an earlier attempt still has in flight is not stored any more, and then
the last sequence holds. A message that the stream refuses shifts what is in flight behind it. The publisher notices,
and the next attempt, too: it compares the end of the stream with the rows before it continues.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import Json
from nats_bridge.client.operations import publication
from nats_bridge.client.pub_ack import PubAck
from nats_bridge.client.stream_identity import KnownStream
from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.ack_reply import AckReply
from nats_bridge.consuming.replay import Replay
from nats_bridge.errors import ApiError
from nats_bridge.kinds.copying.counters import CopyCounters
from nats_bridge.kinds.copying.position.last_sequence_probe import last_sequence_behind
from nats_bridge.kinds.copying.target import Target
from nats_bridge.kinds.copying.writing.encoder import Operation
from nats_bridge.kinds.copying.writing.gap_filler import GapFiller
from nats_bridge.kinds.copying.writing.window import LEAST
from nats_bridge.settings import Connection as ConnectionSettings
from nats_bridge_spark.backfill.rows import Batches, KeptRows, Piece
from nats_bridge_spark.backfill.spark_work import counts_of
from nats_bridge_spark.connections import connected
from nats_bridge_spark.errors import DataLostError, PipelineError, RowError, marking
from nats_bridge_spark.restore.configuration import (
    FILLER,
    GENERATION,
    WINDOW,
    RestoreMark,
    probe_of,
    restoring_config,
    subject_of,
)
from nats_bridge_spark.restore.message_ids import RememberedIds
from nats_bridge_spark.rounds import Rounds, Standing, WriteTarget
from nats_transforms import header_block
from nats_transforms.republish import unpublishable
from nats_transforms.source_record import HEADER, TWIN_HEADER
from nats_transforms.sourcing import Sourcing

CHECKED: Final = 2 * LEAST
"""Sequences at the end of the stream that are compared with the rows before it continues: more than are in flight."""

_FILLERS: Final = 1 << 19
"""Fillers that the stream holds at most, before they are purged."""

_MOST: Final = 256
_PLACEHOLDER: Final = "g" * GENERATION
_ID: Final = b"Nats-Msg-Id"
_UNLIKELY: Final = {"Nats-Expected-Last-Msg-Id": "nats-bridge stores nothing"}
_WRONG_LAST_ID: Final = 10070
"""The answer to a message with that header, unless its id makes it a duplicate: checked before that (2.10 to 2.15)."""


@dataclass(frozen=True, slots=True)
class RestoreTask:
    """Restores rows; called by Spark with those of a capture, in order.

    Attributes:
        config: what the stream ends with.
        mark: what is restored.
        sourcing: selects messages, and gives them their subjects; None where nothing changes.
        connection: where the stream is.
        known: by what the stream is recognised.
        last: the last sequence that it gets.
        patience: seconds for which the server may be away, or the stream take nothing.
    """

    config: Json
    mark: RestoreMark
    sourcing: Sourcing | None
    connection: ConnectionSettings = field(repr=False)
    known: KnownStream
    last: int
    patience: float = 60.0

    @property
    def stream(self) -> str:
        """The stream that is restored."""
        return str(self.config["name"])

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Restore the rows.

        Raises:
            PipelineError: marked, for the driver to find.
        """
        return counts_of(self.counts(batches))

    def without_rows(self) -> dict[str, int]:
        """The same for none, and its counts: Spark would run no task."""
        with marking():
            return asyncio.run(self.counts(iter(())))

    async def counts(self, batches: Batches) -> dict[str, int]:
        """Restore the rows; what was done with how many."""
        async with connected(self.connection, client_name=f"nats-bridge-restore {self.stream}") as connection:
            sender = _Sender(self, connection)
            try:
                await sender.open()
                rows = KeptRows(batches)
                async for piece in rows.behind(0):
                    rows.stored(rows.last)  # kept as operations from now on
                    await sender.send(piece)
                await sender.finish()
            finally:
                await sender.close()
            return {**sender.counts, "rows": rows.read, "last": self.last}


class _Sender:
    """Makes what is published, and has it sent (see `Sender`).

    Attributes:
        counts: what was done, by what it is called.
    """

    def __init__(self, task: RestoreTask, connection: Connection) -> None:
        self.counts = {"restored": 0, "unselected": 0, "changed": 0}
        self._task = task
        self._connection = connection
        self._probe = probe_of(task.stream)
        self._limit = connection.client.max_payload
        self._generation = b""
        self._last = 0  # the stream's last sequence when the round began
        self._began = 0  # and when the first one did
        self._fillers = 0  # that it may hold
        self._target: Target | None = None
        self._rounds: Rounds[list[Operation]] = Rounds(
            WriteTarget.of(task.stream, "restore", "while it was restored"),
            connection,
            self,
            CopyCounters(),
            patience=task.patience,
            known=task.known,
            keeps_sequence=True,
        )
        self._ids = RememberedIds(self._rounds.settled, self._forgotten)
        filler = subject_of(task.stream, _PLACEHOLDER, FILLER)
        self._gaps = GapFiller(f"restore of {task.stream}", task.mark.stream, b"restore", filler)
        self._held: dict[int, tuple[bytes, bytes, bytes]] = {}  # the end of the stream, by sequences

    async def open(self) -> None:
        """Begin: read what the stream holds."""
        info = await self._rounds.info()
        self._require_marked(info)
        await self._rounds.open(self._probe.encode(), info)
        self._began = self._last
        self._gaps.follow(self._last)
        first = max(1, self._last - CHECKED + 1)
        newest_id = b""
        replay = Replay(self._connection.api, self._task.stream)
        async with contextlib.aclosing(replay.between(first, self._last)) as batches:
            async for batch in batches:
                for subject, reply, block, payload in batch:
                    self._held[AckReply.parse(reply).stream_sequence] = (subject, block, payload)
                    newest_id = header_block.read(block, _ID) or newest_id
        if newest_id:
            await self._forgotten(newest_id)  # of what an earlier attempt has stored just now

    async def send(self, piece: Piece) -> None:
        """Publish the rows that the stream lacks; compare the others."""
        made: list[Operation] = []
        for sequence, message in zip(piece.sequences, piece.messages(), strict=True):
            if sequence > self._task.last:
                break
            parts = self._parts(sequence, message)
            if sequence <= self._began:
                self._compare(sequence, parts)
                continue
            if parts is None:
                self.counts["unselected"] += 1
                continue
            _, block, _ = parts
            message_id = header_block.read(block, _ID) if block else None
            if message_id:
                if message_id in self._ids:
                    await self._publish(made)
                    made = []
                await self._ids.add(message_id)
            made.append((b"%d" % sequence, self._operation(*parts)))
            self.counts["restored"] += 1
        await self._publish(made)

    async def finish(self) -> None:
        """Give the stream its last sequence, and wait until it has everything."""
        for piece in self._gaps.until(self._task.last + 1):
            await self._fill(piece)
        await self._rounds.settled()
        await self._purge_fillers()

    async def close(self) -> None:
        """Stop; what is not confirmed stays unknown."""
        await self._rounds.close()

    # -- what `Rounds` asks ------------------------------------------------------------------------------------------

    async def look(self, standing: Standing, in_flight: Sequence[list[Operation]]) -> None:
        """Keep out what is in flight from before, then see how far the stream is (see `Sender`)."""
        task, api = self._task, self._connection.api
        self._require_marked(standing.info)
        generation = secrets.token_hex(GENERATION // 2)
        config = restoring_config(task.config, task.mark, generation)
        info = await api.request(f"STREAM.UPDATE.{task.stream}", config)
        self._generation = generation.encode()
        self._last = await last_sequence_behind(self._connection, task.stream, self._probe.encode())
        self._target = Target.of(info, self._connection.server_version)
        await self._purge_fillers()

    def left(self, messages: list[Operation]) -> list[Operation]:
        """What the stream does not hold."""
        return [(name, self._addressed(data)) for name, data in messages if int(name) > self._last]

    async def refused(self, operation: Operation, pub_ack: PubAck) -> None:
        """End: what the stream does not take cannot be left out."""
        sequence = operation[0].decode()
        raise RowError(
            f"stream '{self._task.stream}': refuses message {sequence}: {pub_ack.description} ({pub_ack.err_code});"
            " delete the stream before it is restored again"
        )

    def _require_marked(self, info: Json) -> None:
        if RestoreMark.of(info["config"]) != (self._task.mark, False):
            raise PipelineError(f"stream '{self._task.stream}': was changed by another process while it was restored")

    # -- messages ----------------------------------------------------------------------------------------------------

    def _parts(self, sequence: int, message: Delivered) -> tuple[bytes, bytes, bytes] | None:
        """A message's subject, header block and payload as they are to be stored; None for one that is not selected."""
        subject, _, block, payload = message
        sourcing = self._task.sourcing
        if sourcing is not None:
            destination = sourcing.destination(subject)
            if destination is None or (sourcing.where is not None and not sourcing.where.holds(block)):
                return None
            subject = destination
        # A stream of advisories takes its own ones back.
        if (code := unpublishable(subject)) is not None and (code, subject[:10]) != ("reserved", b"$JS.EVENT."):
            raise RowError(f"message {sequence}: nothing can be published on '{subject.decode('utf-8', 'replace')}'")
        if b"Nats-" in block:
            travelling = self._travelling(block)
            self.counts["changed"] += travelling != block and sequence > self._began
            block = travelling
        if len(block) + len(payload) > self._limit:
            raise RowError(
                f"message {sequence}: has {len(block) + len(payload)} bytes, more than the {self._limit} that the"
                " server takes (max_payload)"
            )
        return subject, block, payload

    def _travelling(self, block: bytes) -> bytes:
        """A header block without what the stream would refuse, or act on as on a new message."""
        target = self._target
        assert target is not None
        if target.record_header == TWIN_HEADER:
            block = block.replace(b"\n" + HEADER + b":", b"\n" + TWIN_HEADER + b":")
        block = header_block.remove_prefix(header_block.remove(block, b"Nats-Request-Info"), b"Nats-Batch-")
        return target.with_renamed(target.without_withheld(block))

    def _operation(self, subject: bytes, block: bytes, payload: bytes) -> bytes:
        place = subject_of(self._task.stream, _PLACEHOLDER, "").encode() + subject
        return publication(place, b"", block, payload)

    def _addressed(self, operation: bytes) -> bytes:
        """The same in the present generation."""
        at = operation.index(b" ") + 2 + len(self._probe)
        return operation[:at] + self._generation + operation[at + GENERATION :]

    def _compare(self, sequence: int, expected: tuple[bytes, bytes, bytes] | None) -> None:
        """Compare what the stream holds with a row.

        Raises:
            DataLostError: it is something else.
        """
        stored = self._held.pop(sequence, None)  # None: a limit or a rollup has removed it
        sourcing = self._task.sourcing
        if sourcing is not None and any(part.is_random for part in sourcing.transforms):
            return
        if stored is not None and stored != expected:
            raise DataLostError(
                f"stream '{self._task.stream}': holds another message than the capture under sequence {sequence}, left"
                " by a restore that failed: delete the stream, and restore it again"
            )

    # -- publishing --------------------------------------------------------------------------------------------------

    async def _publish(self, made: list[Operation]) -> None:
        for piece, are_fillers in self._gaps.pieces(made):
            if are_fillers:
                await self._fill(piece)
                continue
            for start in range(0, len(piece), _MOST):
                await self._send(piece[start : start + _MOST])

    async def _fill(self, piece: list[Operation]) -> None:
        self._fillers += len(piece)
        await self._send(piece)
        if self._fillers >= _FILLERS:
            await self._rounds.settled()
            await self._purge_fillers()

    async def _send(self, piece: list[Operation]) -> None:
        await self._rounds.send([(name, self._addressed(data)) for name, data in piece])

    async def _purge_fillers(self) -> None:
        await self._rounds.patiently(
            self._connection.api.request, f"STREAM.PURGE.{self._task.stream}", {"filter": FILLER}
        )
        self._fillers = 0

    async def _forgotten(self, message_id: bytes) -> None:
        """Wait until the stream does not take a message with this id for a duplicate."""
        headers = {**_UNLIKELY, _ID.decode(): message_id.decode("utf-8", "replace")}
        while True:
            try:
                await self._rounds.patiently(self._connection.api.store, self._probe, b"", headers)
            except ApiError as error:
                if error.err_code != _WRONG_LAST_ID:
                    raise
                return
            await asyncio.sleep(WINDOW / 4)
