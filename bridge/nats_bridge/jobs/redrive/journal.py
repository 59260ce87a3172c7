"""Records redriven letters in a stream, before and after each window.

A record is appended only if the previous one is still the newest of its subject. So only one process at a time redrives
the letters of a stream: a second one fails at its next record, before it publishes anything.

A record lists the letters that are done, and those that are published next. If a process is killed, the next one finds
them here, with the facts needed to find out which of them were stored.

A record also contains messages of the letters' stream, which identify it if its creation time changes. The creation
time that was seen first stays in the records' subject and in the ids of redriven messages.
"""

import asyncio
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import STREAM_NOT_FOUND, Json
from nats_bridge.client.permission_violations import refused_publication
from nats_bridge.client.pub_ack import PubAck
from nats_bridge.client.raw_requests import RawRequests
from nats_bridge.client.stream_identity import KnownStream, MessageStamp
from nats_bridge.client.waiting import ANSWER
from nats_bridge.consuming.ack_reply import AckReply
from nats_bridge.consuming.replay import Replay
from nats_bridge.consuming.stream_range import messages
from nats_bridge.errors import ApiError, RuleRefusedError
from nats_transforms.header_block import START

JOURNAL: Final = "nats-bridge_redrive"
"""The stream of the records, in the account of the dead letters."""


class JournalPublisher:
    """Publishes on one connection, for one caller at a time, within `async with`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._requests = RawRequests(connection)
        self._subjects: set[bytes] = set()
        self._refused: RuleRefusedError | None = None

    async def __aenter__(self) -> None:
        self._connection.on_refusal(self._on_refusal)
        await self._requests.open()

    async def __aexit__(self, *_: object) -> None:
        self._connection.forget(self._on_refusal)
        await self._requests.close()

    async def publish(self, messages: Sequence[tuple[bytes, bytes, bytes]]) -> list[PubAck]:
        """Publish subjects, header blocks and payloads.

        Return the answers, or None for those missing after five seconds.

        Raises:
            RuleRefusedError: the user may not publish on one of the subjects.
        """
        self._subjects = {subject for subject, _, _ in messages}
        answers = await asyncio.gather(*(self._requests.ask(*each, within=ANSWER) for each in messages))
        if self._refused is not None:
            raise self._refused
        return [PubAck.of(answer) for answer in answers]

    def _on_refusal(self, text: str) -> None:
        subject = refused_publication(text)
        if subject in self._subjects:
            advice = f"allow the user to publish to '{subject.decode()}'; --permissions prints all that it needs"
            self._refused = RuleRefusedError(f"the server refuses ({text}): {advice}")
            self._requests.give_up()


class Pending(NamedTuple):
    """A window that was begun."""

    letters: tuple[tuple[int, ...], ...] = ()  # sequences of its letters, each followed by those of the same message
    floors: Mapping[str, int] = {}  # for each stream that takes them, the newest sequence that it had before
    since_ns: int = 0  # time of the first possible publication since 1970; 0 stands for the record's own time


class Journal:
    """The records of one stream's letters. `info` is its `STREAM.INFO`; a recreated stream has other records.

    Attributes:
        stream: the facts that will identify the letters' stream.
        created: its creation time when it was seen first.
        done: the letters that were redriven.
        doubtful: letters that were begun and may or may not have been stored.
        pending: the window that was begun and not ended.
    """

    def __init__(self, connection: Connection, publisher: JournalPublisher, info: Json) -> None:
        self._api = connection.api
        self._publisher = publisher
        self._info = info
        self._config: Json = info["config"]
        self._newest = 0
        self.stream = KnownStream.of(info)
        self.created = self.stream.created
        self.done: set[int] = set()
        self.doubtful: set[int] = set()
        self.pending = Pending()

    @property
    def _subject(self) -> str:
        return f"{JOURNAL}.{self._config['name']}.{zlib.crc32(self.created.encode()):08x}"

    async def read(self) -> None:
        """Read all records; none if the journal does not exist."""
        self.created = await self._first_created()
        newest = await self._api.last_message(JOURNAL, self._subject)
        while newest is not None and self._newest != newest.sequence:  # a replica may not have the newest ones yet
            self.done, self.doubtful, self._newest = set(), set(), 0
            replay = Replay(self._api, JOURNAL, (self._subject,))
            async for _, reply, _, payload in messages(replay, 1, newest.sequence):
                self._newest = AckReply.parse(reply).stream_sequence
                self._apply(json.loads(payload))

    async def _first_created(self) -> str:
        """Return the creation time under which the records of this stream are kept.

        The present one if there are none.
        """
        newest = await self._api.last_message(JOURNAL, f"{JOURNAL}.{self._config['name']}.*")
        said: Json = json.loads(newest.payload).get("stream", {}) if newest is not None else {}
        known = KnownStream(said.get("seen", ""), tuple(MessageStamp(*each) for each in said.get("messages", ())))
        is_same = known.messages and await known.verdict(self._api, self._info) != "recreated"
        return str(said["created"]) if is_same else self.stream.created

    async def open(self) -> None:
        """Create the stream of the records if it does not exist. Raise `ApiError` if that fails."""
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
        """Write which letters are finished and which begin. Returns when the record is stored.

        Raises:
            RuleRefusedError: another process appended, or no answer confirms the record.
        """
        stream = {"created": self.created, "seen": self.stream.created, "messages": self.stream.messages}
        record: Json = {"done": list(done), "doubtful": list(doubtful), "stream": stream}
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
        """Begin the pending window again, and shut out a process that may still run.

        Return the window's age in seconds.

        Raises:
            ApiError: the server does not answer.
            RuleRefusedError: as for `append`.
        """
        since = self.pending.since_ns or await self._time_of_newest()
        await self.append(begin=self.pending._replace(since_ns=since))
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
