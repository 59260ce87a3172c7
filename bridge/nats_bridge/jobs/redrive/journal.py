"""Records in a stream what is redriven, before and after each window.

Every record is appended only if the one before it is still the newest of its subject. So one process at a time
redrives the letters of a stream: a second one fails at its next record, before it publishes anything.

A record says which letters are done, and which are published next: a process that is killed leaves them behind for
the next one, with what it needs to find out which of them were stored.
"""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import uuid4

from nats_bridge.client.jetstream_api import STREAM_NOT_FOUND, JetStreamApi, Json
from nats_bridge.consuming.ack_reply import AckReply
from nats_bridge.consuming.replay import Replay
from nats_bridge.errors import ApiError, RuleRefusedError
from nats_bridge.jobs.redrive.publisher import Publisher
from nats_transforms.header_block import START

JOURNAL: Final = "nats-bridge_redrive"
"""The stream that holds the records, in the account of the dead letters."""


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
        api: the API of the dead letters' connection.
        publisher: publishes the records.
        info: `STREAM.INFO` of the dead letters' stream; one that is recreated has other records.

    Attributes:
        done: the letters that were redriven.
        doubtful: of those begun, the ones of which it is unknown whether they were stored.
        pending: the window that was begun and not ended.
    """

    def __init__(self, api: JetStreamApi, publisher: Publisher, info: Json) -> None:
        self._api = api
        self._publisher = publisher
        self._config: Json = info["config"]
        self._subject = f"{JOURNAL}.{self._config['name']}.{zlib.crc32(info['created'].encode()):08x}"
        self._newest = 0
        self.done: set[int] = set()
        self.doubtful: set[int] = set()
        self.pending = Pending()

    async def read(self) -> None:
        """Read all records; without a journal there are none.

        Raises:
            ApiError: the server cannot be asked.
        """
        newest = await self._api.last_message(JOURNAL, self._subject)
        while newest is not None and self._newest != newest.sequence:  # a replica may not have the newest ones yet
            self.done, self.doubtful, self._newest = set(), set(), 0
            replay = Replay(self._api, JOURNAL, (self._subject,))
            async with contextlib.aclosing(replay.between(1, newest.sequence)) as batches:
                async for batch in batches:
                    for _, reply, _, payload in batch:
                        self._newest = AckReply.parse(reply).stream_sequence
                        self._apply(json.loads(payload))

    async def open(self) -> None:
        """Create the stream of the records if it does not exist; raises `ApiError`."""
        try:
            await self._api.stream_info(JOURNAL)
        except ApiError as error:
            if error.err_code != STREAM_NOT_FOUND:
                raise
            config = {
                "name": JOURNAL,
                "subjects": [f"{JOURNAL}.>"],
                "storage": "file",
                "num_replicas": self._config.get("num_replicas", 1),
                "description": "what nats-bridge redrive has put back; do not delete while it is needed",
            }
            await self._api.request(f"STREAM.CREATE.{JOURNAL}", config)

    async def append(
        self, *, done: Iterable[int] = (), doubtful: Iterable[int] = (), begin: Pending | None = None
    ) -> None:
        """Write what was finished, and what begins now; returns when it is stored.

        Raises:
            RuleRefusedError: another process appended, or no answer confirms the record.
        """
        record: Json = {"id": uuid4().hex, "done": list(done), "doubtful": list(doubtful)}
        if begin is not None and begin.letters:
            record |= {"begin": begin.letters, "floors": dict(begin.floors), "since": begin.since_ns}
        payload = json.dumps(record, separators=(",", ":")).encode()
        block = START + b"Nats-Expected-Last-Subject-Sequence: %d\r\n\r\n" % self._newest
        (pub_ack,) = await self._publisher.publish([(self._subject.encode(), block, payload)])
        if pub_ack.overtaken:
            raise RuleRefusedError(
                f"stream '{self._config['name']}': another redrive of it runs, or ran until now: wait for its end,"
                " then run this again"
            )
        if not pub_ack.sequence:
            raise RuleRefusedError(
                f"stream '{JOURNAL}', which keeps what was redriven, stores no record: {pub_ack.description}; the same"
                " command resumes when it does"
            )
        self._newest = pub_ack.sequence
        self._apply(json.loads(payload))

    async def take_over(self) -> float:
        """Begin the pending window again, and shut out a process that may still run; return the window's age, seconds.

        Raises:
            ApiError: the server cannot be asked.
            RuleRefusedError: as for `append`.
        """
        since = self.pending.since_ns or await self._time_of_newest()
        await self.append(begin=replace(self.pending, since_ns=since))
        return (await self._time_of_newest() - since) / 1e9

    async def _time_of_newest(self) -> int:
        record = await self._api.stored_message(JOURNAL, self._newest)
        if record is None:
            raise RuleRefusedError(f"stream '{JOURNAL}' has lost what was redriven: its newest record was deleted")
        return record.time_ns

    def _apply(self, record: Json) -> None:
        self.done |= set(record["done"])
        self.doubtful = (self.doubtful | set(record["doubtful"])) - set(record["done"])
        begun = tuple(tuple(one) for one in record.get("begin", ()))
        self.pending = Pending(begun, record.get("floors", {}), record.get("since", 0))
