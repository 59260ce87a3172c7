"""Publishes what a repair appends or puts, each once, and deletes what is too much.

Theory of operation: `Rounds` sends, as it does for Spark's writing. A put names the sequence that the comparison has
seen as the newest of its subject, so what is newer stays. After an interruption, and where something else was stored
since, the stream is asked whether it holds the message. A repair that is killed is simply run again: it compares again.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from nats_bridge.bridge.errors import ApiError
from nats_bridge.bridge.replication import (
    STREAM_NOT_FOUND,
    Connection,
    CopyCounters,
    Operation,
    PubAck,
    Replay,
    Target,
    parts_of,
)
from nats_bridge.pipeline.diff.comparing import By
from nats_bridge.pipeline.diff.repair.steps import Step
from nats_bridge.pipeline.rounds import Place, Rounds, Standing
from nats_bridge.transforms import header_block

_ID: Final = b"Nats-Msg-Id"
_TOGETHER: Final = 256  # messages that are published at a time
_LARGEST: Final = 4 << 20  # bytes of them


@dataclass(slots=True)
class Applied:
    """What was done.

    Attributes:
        stored: messages that the stream has now.
        deleted: messages that it has no more.
        newer: subjects of which it had something newer than was compared.
        remembered: messages that it did not store, because it remembers their id, and does not hold them.
        refused: for each reason, messages that it refused.
    """

    stored: int = 0
    deleted: int = 0
    newer: int = 0
    remembered: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    @property
    def complete(self) -> bool:
        """Whether everything was done."""
        return not (self.newer or self.remembered or self.refused)


class Applying:
    """Does steps to one stream, in their order: what is stored is confirmed before anything is deleted.

    Args:
        connection: the connection of the right side.
        target: its stream, as it was compared.
        by: how messages are identified.
        patience: seconds for which the server may be away, or the stream take nothing.
    """

    def __init__(self, connection: Connection, target: Target, by: By, *, patience: float = 60.0) -> None:
        self.applied = Applied()
        self._api = connection.api
        self._stream = target.name
        self._by = by
        self._counters = CopyCounters()
        self._sent = 0
        self._untaken: set[bytes] = set()  # names of operations that were not stored
        self._there: set[bytes] = set()  # ids of what was stored, when a round began
        self._waiting: list[Operation] = []
        self._size = 0
        self._wrong: dict[bytes, int] = {}  # by operations, what is deleted when they are stored
        place = Place.of(target.name, "repair", "since it was compared")
        self._rounds: Rounds[list[Operation]] = Rounds(
            place, connection, self, self._counters, patience=patience, created=target.created
        )
        self._is_open = False
        self._stores = True

    async def do(self, step: Step, operation: Operation | None) -> None:
        """Do a step, or let it wait for others.

        Args:
            step: which one.
            operation: what it publishes; None where it deletes.

        Raises:
            PipelineError: the stream is missing, another one, or full; its server is away.
            BridgeError: the server refuses.
        """
        if operation is None:
            await self.finish()
            await self.delete(step.right, step.subject if self._by == "subject" else None)
            return
        self._waiting.append(operation)
        self._size += len(operation[1])
        if step.action == "replace":
            self._wrong[operation[0]] = step.right
        if len(self._waiting) == _TOGETHER or self._size > _LARGEST:
            await self._send()

    async def finish(self) -> None:
        """Wait until everything sent is stored, or known not to be; delete what was replaced. Errors as for `do`."""
        if not self._stores:
            return
        self._stores = False
        await self._send()
        if self._is_open:
            await self._rounds.settled()
        self.applied.remembered = self._counters.duplicates
        self.applied.stored = self._sent - len(self._untaken) - self.applied.remembered
        if self.applied.remembered:
            return  # it is not known which: the wrong ones stay until the next repair
        for name, sequence in self._wrong.items():
            if name not in self._untaken:
                await self.delete(sequence, None)

    async def _send(self) -> None:
        if not self._waiting:
            return
        operations, self._waiting, self._size = self._waiting, [], 0
        if not self._is_open:
            subject, _, _ = parts_of(operations[0][1])
            await self._rounds.open(subject, await self._rounds.info())
            self._is_open = True
        self._sent += len(operations)
        await self._rounds.send(operations)

    async def delete(self, sequence: int, subject: bytes | None) -> None:
        """Delete a message; with a subject, also all before it that have this one.

        Raises:
            ApiError: the server refuses it.
        """
        try:
            if subject is None:
                await self._rounds.patiently(
                    self._api.request, f"STREAM.MSG.DELETE.{self._stream}", {"seq": sequence, "no_erase": True}
                )
            else:
                body = {"filter": subject.decode(), "seq": sequence + 1}
                await self._rounds.patiently(self._api.request, f"STREAM.PURGE.{self._stream}", body)
        except ApiError as error:
            if not await self._is_deleted(sequence, subject, error):
                if error.http_code not in (400, 404):
                    raise
                self.applied.refused[str(error)] += 1
                return
        self.applied.deleted += 1

    async def _is_deleted(self, sequence: int, subject: bytes | None, error: ApiError) -> bool:
        """Whether the message is away, as after a deletion that is repeated because its answer was late."""
        if subject is not None or error.err_code == STREAM_NOT_FOUND:
            return False
        return await self._rounds.patiently(self._api.stored_message, self._stream, sequence) is None

    async def close(self) -> None:
        """Stop; what is not confirmed stays unknown."""
        await self._rounds.close()

    # -- what `Rounds` asks ------------------------------------------------------------------------------------------

    async def look(self, standing: Standing, in_flight: Sequence[list[Operation]]) -> None:
        """See what the stream holds of what is in flight (see `Sender`)."""
        if not in_flight:
            return
        self._there = set()
        replay = Replay(self._api, self._stream, headers_only=True)
        async with contextlib.aclosing(replay.between(standing.behind + 1, standing.last)) as batches:
            async for batch in batches:
                self._there |= {header_block.read(block, _ID) or b"" for _, _, block, _ in batch}

    def left(self, messages: list[Operation]) -> list[Operation]:
        """What is not there."""
        return [each for each in messages if header_block.read(parts_of(each[1])[1], _ID) not in self._there]

    async def refused(self, operation: Operation, pub_ack: PubAck) -> None:
        """Count what the stream does not take, unless it is what an earlier attempt stored."""
        subject, block, payload = parts_of(operation[1])
        if pub_ack.overtaken:
            newest = await self._rounds.patiently(self._api.last_message, self._stream, subject.decode())
            if newest is not None and (newest.header_block, newest.payload) == (block, payload):
                return
            self.applied.newer += 1
        else:
            self.applied.refused[f"{pub_ack.description} ({pub_ack.err_code})"] += 1
        self._untaken.add(operation[0])
