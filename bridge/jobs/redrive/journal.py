"""Records in a stream what is redriven, before and after each window.

Every record is appended only if the one before it is still the newest of its subject. So one process at a time
redrives the letters of a stream: a second one fails at its next record, before it publishes anything.

A record says which letters are done, and which are published next: a process that is killed leaves them behind for
the next one, with what it needs to find out which of them were stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import uuid4

from nats_bridge.bridge.client.connection import Connection
from nats_bridge.bridge.client.jetstream_api import STREAM_NOT_FOUND, Json
from nats_bridge.bridge.client.permission_violations import refused_publication
from nats_bridge.bridge.client.pub_ack import PubAck
from nats_bridge.bridge.client.raw_requests import RawRequests
from nats_bridge.bridge.client.tasks import happens
from nats_bridge.bridge.consuming.ack_reply import AckReply
from nats_bridge.bridge.consuming.replay import Replay
from nats_bridge.bridge.errors import ApiError, RuleRefusedError
from nats_bridge.transforms.header_block import START

JOURNAL: Final = "nats-bridge_redrive"
"""The stream that holds the records, in the account of the dead letters."""

_ANSWER: Final = 5.0  # seconds
_PAUSE: Final = 0.25  # seconds until a record without an answer is sent again


def journal_subject(stream: str, created: str) -> str:
    """The subject of a stream's records; a recreated stream has another one."""
    return f"{JOURNAL}.{stream}.{zlib.crc32(created.encode()):08x}"


class StoppedError(Exception):
    """The redrive ended while a record was waiting to be stored; the stored records are correct."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A window that was begun.

    Attributes:
        letters: the sequences of its letters, each with those of the same message behind it.
        floors: for each stream that takes them, the newest sequence that it had before.
        since_ns: when the first of them may have been published, nanoseconds since 1970; 0 is the record's own time.
    """

    letters: tuple[tuple[int, ...], ...] = ()
    floors: Mapping[str, int] = field(default_factory=dict)
    since_ns: int = 0


class Journal:
    """The records of one stream's letters.

    Args:
        connection: the connection of the dead letters' stream.
        stream: its name.
        created: when it was created, as its server writes it.
        replicas: how many servers keep the records; as many as keep the letters.

    Attributes:
        done: the letters that were redriven.
        doubtful: of those begun, the ones of which it is unknown whether they were stored.
        pending: the window that was begun and not ended.
    """

    def __init__(self, connection: Connection, stream: str, created: str, replicas: int) -> None:
        self._connection = connection
        self._api = connection.api
        self._stream = stream
        self._subject = journal_subject(stream, created)
        self._replicas = replicas
        self._raw = RawRequests(connection)
        self._newest = 0
        self._refused = asyncio.Event()
        self._stop = asyncio.Event()
        self._waits: Callable[[str], None] = lambda _: None
        self.done: set[int] = set()
        self.doubtful: set[int] = set()
        self.pending = Pending()

    async def read(self) -> None:
        """Read all records; without a journal there are none.

        Raises:
            ApiError: the server cannot be asked.
        """
        newest = await self._api.last_message(JOURNAL, self._subject)
        if newest is None:
            return
        while self._newest != newest.sequence:  # a replica may not have the newest ones yet
            self.done, self.doubtful, self._newest = set(), set(), 0
            replay = Replay(self._api, JOURNAL, (self._subject,))
            async with contextlib.aclosing(replay.between(1, newest.sequence)) as batches:
                async for batch in batches:
                    for _, reply, _, payload in batch:
                        self._newest = AckReply.parse(reply).stream_sequence
                        self._apply(json.loads(payload))

    async def open(self, stop: asyncio.Event, waits: Callable[[str], None]) -> None:
        """Prepare to append: create the stream of the records if it does not exist.

        Args:
            stop: set when it should wait no longer for a stream that is full or away.
            waits: called with what it waits for.

        Raises:
            ApiError: the server refuses it.
        """
        self._stop, self._waits = stop, waits
        await self._raw.open()
        self._connection.on_refusal(self._on_refusal)
        try:
            await self._api.stream_info(JOURNAL)
        except ApiError as error:
            if error.err_code != STREAM_NOT_FOUND:
                raise
            config = {
                "name": JOURNAL,
                "subjects": [f"{JOURNAL}.>"],
                "storage": "file",
                "num_replicas": self._replicas,
                "description": "what nats-bridge redrive has put back; do not delete while it is needed",
            }
            await self._api.request(f"STREAM.CREATE.{JOURNAL}", config)

    async def close(self) -> None:
        """Stop appending."""
        self._connection.forget(self._on_refusal)
        await self._raw.close()

    async def append(
        self, *, done: Iterable[int] = (), doubtful: Iterable[int] = (), begin: Pending | None = None
    ) -> None:
        """Write what was finished, and what begins now; returns when it is stored.

        Raises:
            RuleRefusedError: another process appended, or the records cannot be stored.
            StoppedError: it should end before it is stored.
        """
        record: Json = {"id": uuid4().hex, "done": _ranges(done), "doubtful": _ranges(doubtful)}
        if begin is not None and begin.letters:
            record |= {"begin": begin.letters, "floors": dict(begin.floors), "since": begin.since_ns}
        payload = json.dumps(record, separators=(",", ":")).encode()
        while not (stored := await self._append_once(payload)).sequence:
            self._waits(f"stream {JOURNAL}: {stored.description}")
            if await happens(self._stop, within=_PAUSE):
                raise StoppedError
            await self._api.stream_info(JOURNAL)  # or it waits forever for one that was deleted
            if (earlier := await self._newest_if(payload)) is not None:
                stored = earlier
                break
        self._newest = stored.sequence
        self._apply(json.loads(payload))

    async def take_over(self) -> float:
        """Begin the pending window again, and shut out a process that may still run; return the window's age, seconds.

        Raises:
            ApiError: the server cannot be asked.
            RuleRefusedError, StoppedError: as for `append`.
        """
        since = self.pending.since_ns or await self._time_of_newest()
        await self.append(begin=replace(self.pending, since_ns=since))
        return (await self._time_of_newest() - since) / 1e9

    async def _time_of_newest(self) -> int:
        record = await self._api.stored_message(JOURNAL, self._newest)
        if record is None:
            raise RuleRefusedError(f"stream '{JOURNAL}' has lost what was redriven: its newest record was deleted")
        return record.time_ns

    async def _newest_if(self, payload: bytes) -> PubAck | None:
        """A substitute for the answer to an earlier attempt, if that was stored."""
        newest = await self._api.last_message(JOURNAL, self._subject)
        return PubAck("stored", JOURNAL, newest.sequence) if newest is not None and newest.payload == payload else None

    async def _append_once(self, payload: bytes) -> PubAck:
        """The answer; without a sequence, the record is not stored, or it is unknown."""
        await self._connection.connected()
        block = START + b"Nats-Expected-Last-Subject-Sequence: %d\r\n\r\n" % self._newest
        waiting = self._raw.send(self._subject.encode(), block, payload)
        refused = asyncio.create_task(self._refused.wait())
        await asyncio.wait((waiting, refused), timeout=_ANSWER, return_when=asyncio.FIRST_COMPLETED)
        refused.cancel()
        if self._refused.is_set():
            raise RuleRefusedError(
                f"stream '{JOURNAL}', which keeps what was redriven: the server refuses a record: allow the user to"
                f" publish to '{self._subject}'; --permissions prints all that it needs"
            )
        pub_ack = PubAck.of(waiting.result() if waiting.done() else None)
        waiting.cancel()
        if pub_ack.kind != "refused" or pub_ack.leaves_open:
            return pub_ack
        if pub_ack.overtaken:
            if (earlier := await self._newest_if(payload)) is not None:
                return earlier
            raise RuleRefusedError(
                f"stream '{self._stream}': another redrive of it runs, or ran until now: wait for its end, then run"
                " this again"
            )
        raise RuleRefusedError(
            f"stream '{JOURNAL}', which keeps what was redriven, refuses a record: {pub_ack.description}"
        )

    def _on_refusal(self, text: str) -> None:
        if refused_publication(text) == self._subject.encode():
            self._refused.set()

    def _apply(self, record: Json) -> None:
        done, doubtful = set(_members(record["done"])), set(_members(record["doubtful"]))
        self.done |= done
        self.doubtful = (self.doubtful | doubtful) - done
        self.pending = Pending(
            tuple(tuple(one) for one in record.get("begin", ())), record.get("floors", {}), record.get("since", 0)
        )


def _ranges(numbers: Iterable[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found


def _members(ranges: Iterable[list[int]]) -> Iterable[int]:
    for first, last in ranges:
        yield from range(first, last + 1)
