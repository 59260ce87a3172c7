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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from nats_bridge.bridge.client.connection import Connection
from nats_bridge.bridge.client.permission_violations import refused_publication
from nats_bridge.bridge.client.pub_ack import PubAck
from nats_bridge.bridge.client.raw_requests import RawRequests
from nats_bridge.bridge.client.tasks import happens
from nats_bridge.bridge.client.wire import Delivered
from nats_bridge.bridge.consuming.ack_reply import AckReply
from nats_bridge.bridge.consuming.replay import Replay
from nats_bridge.bridge.errors import ApiError, RuleRefusedError
from nats_bridge.bridge.jobs.redrive.destinations import Destination, Destinations
from nats_bridge.bridge.jobs.redrive.journal import Journal, Pending, StoppedError
from nats_bridge.bridge.jobs.redrive.letter import read_letter, redrive_id, restored
from nats_bridge.bridge.jobs.redrive.plan import Wanted, message_of
from nats_bridge.transforms import header_block

LARGEST: Final = 64  # letters of a window
_ANSWER: Final = 5.0  # seconds for the answers to a window
_PAUSE: Final = 0.25  # seconds until what was not answered is looked for, at first
_LONGEST_PAUSE: Final = 5.0
_SAFE: Final = 0.5  # of the duplicate window: the rest is for what is still travelling


@dataclass(frozen=True, slots=True)
class _Message:
    """A letter's message, ready.

    Attributes:
        letters: the letter's sequence, followed by those of the same message.
        taker: the stream that takes it.
        subject, block, payload: what is published.
        identity: its `Nats-Msg-Id`.
    """

    letters: tuple[int, ...]
    taker: Destination
    subject: bytes
    block: bytes
    payload: bytes
    identity: bytes


@dataclass(slots=True)
class Outcome:
    """The results of letters.

    Attributes:
        redriven: put back.
        settled: of these, begun by a redrive that was interrupted.
        doubtful: sequences of letters of which it is unknown whether they were put back.
        gone: letters that could not be read any more.
        refused: for each reason, letters that their stream rejects.
        interrupted: whether it was stopped before its end.
    """

    redriven: int = 0
    settled: int = 0
    doubtful: list[int] = field(default_factory=list)
    gone: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    interrupted: bool = False

    @property
    def complete(self) -> bool:
        """Whether every letter was put back."""
        return not (self.doubtful or self.gone or self.refused or self.interrupted)


class Redriving:
    """Redrives the letters of one stream.

    Args:
        wanted: the request.
        created: when the dead letters' stream was created, as its server writes it.
        letters: the connection that holds it.
        target: the connection that holds the streams that take the messages.
        destinations: these streams.
        journal: what was redriven; open.
        stop: set when it should end; a window that is not confirmed then is settled by the next redrive.
        report: called after each window with the number of letters put back, and what is waited for, if anything.
    """

    def __init__(
        self,
        wanted: Wanted,
        created: str,
        letters: Connection,
        target: Connection,
        destinations: Destinations,
        journal: Journal,
        stop: asyncio.Event,
        report: Callable[[int, str], None],
    ) -> None:
        self._stream = wanted.stream
        self._rate = wanted.rate
        self._created = created
        self._letters = letters
        self._target = target
        self._destinations = destinations
        self._journal = journal
        self._stop = stop
        self._report = report
        self._requests = RawRequests(target)
        self._floors: dict[str, int] = {}
        self._open: set[bytes] = set()  # ids of the present window that may be stored
        self._began = 0.0  # when the present window may have been published first, by the loop's clock
        self._doubtful: list[int] = []  # not in the journal yet
        self._subjects: set[bytes] = set()  # of the present window
        self.outcome = Outcome()

    async def open(self) -> None:
        """Subscribe to the answers."""
        self._refused: asyncio.Future[RuleRefusedError] = asyncio.get_running_loop().create_future()
        self._target.on_refusal(self._publishing_refused)
        await self._requests.open()

    async def close(self) -> None:
        """Stop waiting for answers."""
        self._target.forget(self._publishing_refused)
        await self._requests.close()

    def _publishing_refused(self, text: str) -> None:
        subject = refused_publication(text)
        if subject in self._subjects and not self._refused.done():
            advice = f"allow the user to publish to '{subject.decode()}'"
            self._refused.set_result(RuleRefusedError(f"the server refuses ({text}): {advice}"))

    # -- what an interrupted redrive left ----------------------------------------------------------------------------

    async def settle(self) -> None:
        """Finish the window that an earlier redrive began.

        Raises:
            ApiError: a server cannot be asked.
            RuleRefusedError: another redrive runs.
        """
        pending = self._journal.pending
        if not pending.letters:
            return
        with self._stoppable():
            age = await self._journal.take_over()
            self._began = asyncio.get_running_loop().time() - age
            self._floors = dict(pending.floors)
            messages = await self._read(pending.letters)
            read = {message.letters for message in messages}
            gone = [letters for letters in pending.letters if letters not in read]
            self.outcome.gone += len(gone)
            before = self.outcome.redriven
            self._open = {message.identity for message in messages}
            done = await self._publish(messages)
            self.outcome.settled = self.outcome.redriven - before
            if done is not None:
                await self._finish(done)

    # -- new windows -------------------------------------------------------------------------------------------------

    async def run(self, letters: Sequence[tuple[int, ...]]) -> None:
        """Redrive letters, in order: each one's sequence, with those of the same message behind it.

        Raises:
            ApiError: a server cannot be asked.
            RuleRefusedError: another redrive runs.
        """
        size = max(1, min(LARGEST, int(self._rate))) if self._rate else LARGEST
        clock = asyncio.get_running_loop().time
        due, done = clock(), list[int]()
        for start in range(0, len(letters), size):
            await self._wait(due - clock())
            if self._stop.is_set():
                break
            window = letters[start : start + size]
            due = max(due, clock()) + (len(window) / self._rate if self._rate else 0)
            with self._stoppable():
                messages = await self._read(window)
                self.outcome.gone += len(window) - len(messages)
                floors = {name: await self._floor(name) for name in {message.taker.name for message in messages}}
                self._open = set()
                await self._append(done, Pending(tuple(one.letters for one in messages), floors))
                done = []
                if (stored := await self._publish(messages)) is None:
                    return  # the journal still has this window
                done = stored
            self._report(self.outcome.redriven, "")
        self.outcome.interrupted = self._stop.is_set()
        with self._stoppable():
            await self._finish(done)

    @contextlib.contextmanager
    def _stoppable(self) -> Iterator[None]:
        """The journal keeps what a stop leaves in it."""
        try:
            yield
        except StoppedError:
            self.outcome.interrupted = True

    async def _floor(self, name: str) -> int:
        if name not in self._floors:
            self._floors[name] = int((await self._target.api.stream_info(name))["state"]["last_seq"])
        return self._floors[name]

    async def _wait(self, seconds: float) -> None:
        await happens(self._stop, within=seconds)

    async def _read(self, window: Iterable[tuple[int, ...]]) -> list[_Message]:
        found = await asyncio.gather(*(self._message(letters) for letters in window))
        return [message for message in found if message is not None]

    async def _message(self, letters: tuple[int, ...]) -> _Message | None:
        """The message to publish for a letter; None if it, or the message that it names, was removed."""
        stored = await self._letters.api.stored_message(self._stream, letters[0])
        if stored is None:
            return None
        letter = read_letter(letters[0], stored.time_ns, stored.header_block, stored.payload)
        if letter is None:
            return None
        subject, block, payload = letter.subject, stored.header_block, stored.payload
        if not letter.complete:
            message = await message_of(letter, self._target.api)
            if message is None:
                return None
            subject, block, payload = subject or message.subject, message.header_block, message.payload
        taker = self._destinations.taker(subject)
        if taker is None:
            return None
        identity = redrive_id(self._stream, self._created, letters[0])
        return _Message(letters, taker, subject, restored(block, identity), payload, identity)

    # -- one window --------------------------------------------------------------------------------------------------

    async def _publish(self, messages: Sequence[_Message]) -> list[int] | None:
        """Publish until each message is confirmed, refused or doubtful; return the letters that are done.

        None if it was stopped while something may be stored: the journal keeps the window.
        """
        done: list[int] = []
        left = [message for message in messages if self._fits(message)]
        pause = _PAUSE
        while left:
            if not await self._is_connected():
                return None
            if self._open:
                left, found = await self._missing(left)
                done += found
                if not left:
                    break
            if not self._open:
                self._began = asyncio.get_running_loop().time()
            self._subjects = {one.subject for one in left}
            answers = [self._requests.send(one.subject, one.block, one.payload) for one in left]
            await self._answered(answers)
            if self._refused.done():
                raise self._refused.result()
            left, confirmed, reason = self._judged(left, answers)
            done += confirmed
            if not left:
                break
            self._report(self.outcome.redriven, f"stream {left[0].taker.name}: {reason}")
            await self._wait(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
            if self._stop.is_set():
                self.outcome.interrupted = True
                return None if self._open else done
        return done

    def _fits(self, message: _Message) -> bool:
        """Whether the server takes a message of this size; if not, it would close the connection."""
        fits = len(message.block) + len(message.payload) <= self._target.client.max_payload
        if not fits:
            self.outcome.refused[f"the server: larger than its max_payload, {self._target.client.max_payload}"] += 1
        return fits

    async def _answered(self, answers: Sequence[asyncio.Future[Delivered | None]]) -> None:
        """Wait for answers; after a signal only for those that are about to come."""
        stopping = asyncio.create_task(self._stop.wait())
        missing: set[asyncio.Future[Any]] = set(answers)
        deadline = asyncio.get_running_loop().time() + _ANSWER
        while missing and not self._refused.done() and (left := deadline - asyncio.get_running_loop().time()) > 0:
            limit = min(left, _PAUSE) if stopping.done() else left
            over, _ = await asyncio.wait(
                {*missing, *(() if stopping.done() else (stopping,)), self._refused},
                timeout=limit,
                return_when=asyncio.FIRST_COMPLETED,
            )
            missing -= over
            if stopping.done() and not over:
                break
        stopping.cancel()

    async def _is_connected(self) -> bool:
        """Wait for the connection; False if it should end before."""
        both = {asyncio.create_task(self._target.connected()), asyncio.create_task(self._stop.wait())}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for task in both:
            task.cancel()
        if self._target.client.is_connected:
            return True
        self.outcome.interrupted = True
        return False

    def _judged(
        self, messages: Sequence[_Message], answers: Sequence[asyncio.Future[Delivered | None]]
    ) -> tuple[list[_Message], list[int], str]:
        """The undecided messages, the letters that are done, and a reason for the undecided ones."""
        left: list[_Message] = []
        done: list[int] = []
        reason = ""
        for message, answer in zip(messages, answers, strict=True):
            pub_ack = PubAck.of(answer.result() if answer.done() else None)
            answer.cancel()
            if pub_ack.kind in ("stored", "duplicate"):
                self._open.discard(message.identity)
                self._floors[pub_ack.stream] = max(self._floors.get(pub_ack.stream, 0), pub_ack.sequence)
                self.outcome.redriven += 1
                done += message.letters
            elif pub_ack.kind == "later" or pub_ack.leaves_open:
                reason = pub_ack.description
                left.append(message)
                if pub_ack.leaves_open:
                    self._open.add(message.identity)
            elif message.identity in self._open:  # which an earlier attempt may have stored
                self._doubt(message)
            else:
                self.outcome.refused[f"stream {message.taker.name}: {pub_ack.description}"] += 1
        return left, done, reason

    def _doubt(self, message: _Message) -> None:
        self._open.discard(message.identity)
        self.outcome.doubtful.append(message.letters[0])
        self._doubtful += message.letters

    async def _missing(self, messages: list[_Message]) -> tuple[list[_Message], list[int]]:
        """The messages to publish, of some that may be stored, and the letters of those that are."""
        left: list[_Message] = []
        done: list[int] = []
        age = asyncio.get_running_loop().time() - self._began
        takers = {message.taker.name: message.taker for message in messages if message.identity in self._open}
        floors = self._journal.pending.floors
        stored = {name: await self._ids_since(taker, floors.get(name, 0)) for name, taker in takers.items()}
        for message in messages:
            if message.identity not in self._open:
                left.append(message)
                continue
            ids, has_gaps = stored[message.taker.name]
            if message.identity in ids:
                self._open.discard(message.identity)
                self.outcome.redriven += 1
                done += message.letters
            elif not has_gaps:
                self._open.discard(message.identity)
                left.append(message)
            elif age < _SAFE * message.taker.duplicate_window:
                left.append(message)
            else:
                self._doubt(message)
        if left and not self._open:  # none of these is stored, so that the ids are remembered from now on
            floors = {name: floors.get(name, 0) for name in {one.taker.name for one in left}}
            await self._append(done, Pending(tuple(message.letters for message in left), floors))
        return left, done

    async def _ids_since(self, stream: Destination, floor: int) -> tuple[set[bytes], bool]:
        """The ids of what a stream stored after a sequence, and whether sequences are missing there."""
        while True:
            await self._target.connected()
            info = await self._target.api.stream_info(stream.name)
            last = int(info["state"]["last_seq"])
            recreated = last < floor  # what it stores now does not show what it stored before
            floor = 0 if recreated else floor
            ids: set[bytes] = set()
            seen, end = 0, floor
            replay = Replay(self._target.api, stream.name, headers_only=True, direct=not stream.keeps_read)
            try:
                async with contextlib.aclosing(replay.between(floor + 1, last)) as batches:
                    async for batch in batches:
                        seen += len(batch)
                        end = AckReply.parse(batch[-1][1]).stream_sequence
                        ids |= {header_block.read(block, b"Nats-Msg-Id") or b"" for _, _, block, _ in batch}
            except ApiError as error:
                if not error.retriable:
                    raise
                await self._wait(_PAUSE)
                continue
            # A replica may not have the end yet.
            if end == last or await self._target.api.stored_message(stream.name, last) is None:
                return ids, recreated or seen < last - floor
            await self._wait(_PAUSE)

    async def _append(self, done: Iterable[int], begin: Pending | None = None) -> None:
        await self._journal.append(done=done, doubtful=self._doubtful, begin=begin)
        self._doubtful = []

    async def _finish(self, done: Sequence[int]) -> None:
        if done or self._doubtful or self._journal.pending.letters:
            await self._append(done)
