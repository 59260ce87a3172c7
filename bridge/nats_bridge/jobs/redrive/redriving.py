"""Publishes dead letters on their original subjects, each exactly once, whatever ends the process.

Theory of operation. Letters go in windows. Before a window the journal says which letters are in it and how far the
streams that take them were; after it, that they are done. A window that was begun and has no end, because the process
was killed or a stream did not answer, is settled like this:

1. The streams are read from where they were, for the ids of the window's letters. What is found is stored.
2. What is not found was not stored, if no sequence is missing there: it is published.
3. If some are missing (a work queue removes what was processed), it is published under the same id while the stream
   remembers ids at least as long again; after that it is unknown, and is reported instead of published.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from nats_bridge.client.jetstream_api import JetStreamApi, Json
from nats_bridge.client.tasks import happens
from nats_bridge.consuming.ack_reply import AckReply
from nats_bridge.consuming.replay import Replay
from nats_bridge.jobs.redrive.destinations import Destinations
from nats_bridge.jobs.redrive.journal import Journal, Pending
from nats_bridge.jobs.redrive.letter import Wanted, read_letter, redrive_id, restored
from nats_bridge.jobs.redrive.publisher import Publisher
from nats_transforms import header_block

LARGEST: Final = 64  # letters of a window
_PAUSE: Final = 0.25  # seconds until a stream is read again, of which a replica does not have the end
_WINDOW: Final = 120 * 10**9  # nanoseconds; what a server takes where a stream names no duplicate window
_SAFE: Final = 0.5  # of the duplicate window: the rest is for what is still travelling


@dataclass(frozen=True, slots=True)
class _Message:
    """A letter's message, ready.

    Attributes:
        letters: the letter's sequence, followed by those of the same message.
        taker: the configuration of the stream that takes it.
        subject, block, payload: what is published.
        identity: its `Nats-Msg-Id`.
    """

    letters: tuple[int, ...]
    taker: Json
    subject: bytes
    block: bytes
    payload: bytes
    identity: bytes


@dataclass(slots=True)
class Outcome:
    """The results of letters.

    Attributes:
        redriven: put back.
        doubtful: sequences of letters of which it is unknown whether they were put back.
        refused: for each reason, letters that their stream rejects, or that were removed before they were read.
        interrupted: why it ended before its end; empty if it did not.
    """

    redriven: int = 0
    doubtful: list[int] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    interrupted: str = ""

    @property
    def complete(self) -> bool:
        """Whether every letter was put back."""
        return not (self.doubtful or self.refused or self.interrupted)


class Redriving:
    """Redrives the letters of one stream.

    Args:
        wanted: the request.
        created: when the dead letters' stream was created, as its server writes it.
        api: the API of its connection.
        publisher: publishes the messages.
        destinations: the streams that take them.
        journal: what was redriven, read and open.
        stop: set when it should end early.
    """

    def __init__(
        self,
        wanted: Wanted,
        created: str,
        api: JetStreamApi,
        publisher: Publisher,
        destinations: Destinations,
        journal: Journal,
        stop: asyncio.Event,
    ) -> None:
        self._stream = wanted.stream
        self._rate = wanted.rate
        self._created = created
        self._api = api
        self._publisher = publisher
        self._destinations = destinations
        self._journal = journal
        self._stop = stop
        self._floors: dict[str, int] = {}
        self._done: list[int] = []  # not in the journal yet, as those in doubt
        self._doubtful: list[int] = []
        self.outcome = Outcome()

    async def settle(self) -> None:
        """Finish the window that an earlier redrive began.

        Raises:
            ApiError: a server cannot be asked.
            RuleRefusedError: another redrive runs, or no record can be stored.
        """
        pending = self._journal.pending
        if not pending.letters:
            return
        age = await self._journal.take_over()
        messages = await self._read(pending.letters)
        takers = {message.taker["name"]: message.taker for message in messages}
        stored = {name: await self._ids_since(taker, pending.floors.get(name, 0)) for name, taker in takers.items()}
        left: list[_Message] = []
        perhaps: set[bytes] = set()
        for message in messages:
            ids, has_gaps = stored[message.taker["name"]]
            if message.identity in ids:
                self._put_back(message)
            elif has_gaps and age * 1e9 >= _SAFE * (message.taker.get("duplicate_window") or _WINDOW):
                self._doubt(message)
            else:
                left.append(message)
                perhaps |= {message.identity} if has_gaps else set()
        if await self._publish(left, perhaps):
            await self._append()

    async def run(self, letters: Sequence[tuple[int, ...]], report: Callable[[int], None]) -> None:
        """Redrive letters, in order.

        Args:
            letters: each one's sequence, with those of the same message behind it.
            report: called after each window with the number of letters put back.

        Raises:
            ApiError: a server cannot be asked.
            RuleRefusedError: another redrive runs, or no record can be stored.
        """
        size = max(1, min(LARGEST, int(self._rate))) if self._rate else LARGEST
        clock = asyncio.get_running_loop().time
        due = clock()
        for start in range(0, len(letters), size):
            await happens(self._stop, within=due - clock())
            if self._stop.is_set():
                self.outcome.interrupted = "by a signal"
            if self.outcome.interrupted:
                break
            window = letters[start : start + size]
            due = max(due, clock()) + (len(window) / self._rate if self._rate else 0)
            messages = await self._read(window)
            floors = {name: await self._floor(name) for name in {message.taker["name"] for message in messages}}
            await self._append(Pending(tuple(one.letters for one in messages), floors))
            if not await self._publish(messages, set()):
                return  # the journal still has this window
            report(self.outcome.redriven)
        if self._done or self._doubtful or self._journal.pending.letters:
            await self._append()

    async def _floor(self, name: str) -> int:
        if name not in self._floors:
            self._floors[name] = int((await self._api.stream_info(name))["state"]["last_seq"])
        return self._floors[name]

    async def _read(self, window: Iterable[tuple[int, ...]]) -> list[_Message]:
        found = await asyncio.gather(*(self._message(letters) for letters in window))
        return [message for message in found if message is not None]

    async def _message(self, letters: tuple[int, ...]) -> _Message | None:
        """The message to publish for a letter; None if that was removed."""
        stored = await self._api.stored_message(self._stream, letters[0])
        letter = read_letter(letters[0], stored.header_block) if stored is not None else None
        taker = self._destinations.taker(letter.subject) if letter is not None else None
        if stored is None or letter is None or taker is None:
            self.outcome.refused["removed before they could be read"] += 1
            return None
        identity = redrive_id(self._stream, self._created, letters[0])
        block = restored(stored.header_block, identity)
        return _Message(letters, taker, letter.subject, block, stored.payload, identity)

    async def _publish(self, messages: Sequence[_Message], perhaps: set[bytes]) -> bool:
        """Publish each message once; False if a later redrive has to find out what was stored.

        Args:
            messages: the messages.
            perhaps: ids of those that an earlier attempt may have stored, while their stream remembers its ids.
        """
        is_decided = True
        answers = await self._publisher.publish([(one.subject, one.block, one.payload) for one in messages])
        for message, pub_ack in zip(messages, answers, strict=True):
            place = f"by stream {message.taker['name']}: {pub_ack.description}"
            if pub_ack.kind in ("stored", "duplicate"):
                self._floors[pub_ack.stream] = max(self._floors.get(pub_ack.stream, 0), pub_ack.sequence)
                self._put_back(message)
            elif pub_ack.kind == "later" or pub_ack.leaves_open:
                self.outcome.interrupted = place
                is_decided &= not pub_ack.leaves_open and message.identity not in perhaps
            elif message.identity in perhaps:
                self._doubt(message)
            else:
                self.outcome.refused[f"refused {place}"] += 1
        return is_decided

    def _put_back(self, message: _Message) -> None:
        self.outcome.redriven += 1
        self._done += message.letters

    def _doubt(self, message: _Message) -> None:
        self.outcome.doubtful.append(message.letters[0])
        self._doubtful += message.letters

    async def _append(self, begin: Pending | None = None) -> None:
        await self._journal.append(done=self._done, doubtful=self._doubtful, begin=begin)
        self._done, self._doubtful = [], []

    async def _ids_since(self, stream: Json, floor: int) -> tuple[set[bytes], bool]:
        """The ids of what a stream stored after a sequence, and whether sequences are missing there."""
        name, keeps_read = stream["name"], stream.get("retention", "limits") == "limits"
        while True:
            last = int((await self._api.stream_info(name))["state"]["last_seq"])
            recreated = last < floor  # what it stores now does not show what it stored before
            floor = 0 if recreated else floor
            ids: set[bytes] = set()
            seen, end = 0, floor
            replay = Replay(self._api, name, headers_only=True, direct=not keeps_read)
            async with contextlib.aclosing(replay.between(floor + 1, last)) as batches:
                async for batch in batches:
                    seen += len(batch)
                    end = AckReply.parse(batch[-1][1]).stream_sequence
                    ids |= {header_block.read(block, b"Nats-Msg-Id") or b"" for _, _, block, _ in batch}
            # A replica may not have the end yet.
            if end == last or await self._api.stored_message(name, last) is None:
                return ids, recreated or seen < last - floor
            await asyncio.sleep(_PAUSE)
