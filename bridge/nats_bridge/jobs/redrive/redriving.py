"""Publishes dead letters on their original subjects, each exactly once, even if the process ends at any time.

Theory of operation. Letters go in windows. Before a window, the journal records its letters and the last sequences of
the streams that store them; after it, that they are done. If a window was begun and has no end, because the process was
killed or a stream did not answer, it is settled like this:

1. The streams are read from these sequences, for the ids of the window's letters. Letters that are found were stored.
2. If no sequence is missing there, the letters not found were not stored, so they are published.
3. If some are missing (a work queue removes processed messages), they are published under the same id as long as the
   stream remembers ids for at least as long again. After that their state is unknown, and they are reported instead of
   published.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from nats_bridge.client.connection import Connection
from nats_bridge.client.connection_pool import connected
from nats_bridge.client.jetstream_api import Json
from nats_bridge.client.stream_identity import KnownStream
from nats_bridge.client.tasks import happens
from nats_bridge.client.waiting import LEADER_AWAY
from nats_bridge.consuming.ack_reply import AckReply
from nats_bridge.consuming.missing_streams import existing_stream
from nats_bridge.consuming.replay import Replay
from nats_bridge.consuming.stream_range import messages
from nats_bridge.jobs.redrive.journal import JOURNAL, Journal, JournalPublisher, Pending
from nats_bridge.jobs.redrive.letter import Letter, read_letter, redrive_id, restored, without_last
from nats_bridge.permissions.need import ANY_STREAM, Need, api_subject, write
from nats_bridge.permissions.reading import replays
from nats_bridge.settings import Settings
from nats_transforms import header_block
from nats_transforms.republish import Refusal, unpublishable
from nats_transforms.subject import matches

LARGEST: Final = 64  # letters of a window
_WINDOW: Final = 120 * 10**9  # nanoseconds; the default of servers if a stream sets no duplicate window
_SAFE: Final = 0.5  # part of the duplicate window; the rest is for messages still travelling
_UNKNOWN: Final = "\ufffd".encode()  # stands in JSON for bytes that are not UTF-8


@dataclass(frozen=True, slots=True)
class RedriveRequest:
    """The request. Empty or 0 means no limit."""

    stream: str
    connection: str = "default"
    consumer: str = ""  # select only letters that this consumer gave up
    subject: str = ""  # select only messages with this subject, which may have wildcards
    most: int = 0
    rate: float = 0  # messages a second
    apply: bool = False
    resend_doubtful: bool = False

    def selects(self, letter: Letter) -> bool:
        """Return whether a letter is selected, ignoring `most`."""
        return self.consumer in ("", letter.consumer) and (
            not self.subject or matches(letter.subject, self.subject.encode())
        )


class Group(NamedTuple):
    """Similar letters. `outcome` is their destination, or the reason why they are not `redriven`."""

    stream: str
    consumer: str
    reason: str
    outcome: str
    redriven: bool


@dataclass(slots=True)
class RedriveResult:
    """The plan, after an interrupted redrive was settled. The fields from `redriven` on are results."""

    applied: bool = False
    unsettled: int = 0  # letters that an interrupted redrive had begun
    held: int = 0  # dead letters in the stream
    # letters to redrive, each followed by others of its message
    letters: list[tuple[int, ...]] = field(default_factory=list)
    groups: Counter[Group] = field(default_factory=Counter)  # the letters that are selected
    done: int = 0  # selected letters that were redriven before, or whose message was
    doubtful_before: int = 0  # selected letters that may or may not have been stored
    beyond: int = 0  # selected letters left out because there are more than wanted
    redriven: int = 0
    doubtful: list[int] = field(default_factory=list)  # of these it is unknown whether they were put back now
    refused: Counter[str] = field(default_factory=Counter)  # for each reason, letters rejected, or removed before
    interrupted: str = ""  # why it ended before its end

    @property
    def good(self) -> bool:
        """Whether every selected letter was or could be put back."""
        stuck = any(not group.redriven for group in self.groups)
        return not (stuck or self.doubtful_before or self.doubtful or self.refused or self.interrupted)


class Destinations:
    """Finds the stream of a subject in the configurations `known`. `letters` is the stream of the dead letters."""

    def __init__(self, known: Iterable[Json], letters: str) -> None:
        self._known = [([subject.encode() for subject in config.get("subjects") or ()], config) for config in known]
        self._letters = letters
        self._found: dict[bytes, Json | None] = {}

    def taker(self, subject: bytes) -> Json | None:
        """Return the configuration of the stream that stores messages with a subject; None without one."""
        if subject not in self._found:
            takers = (config for subjects, config in self._known if any(matches(subject, own) for own in subjects))
            self._found[subject] = next(takers, None)
        return self._found[subject]

    def obstacle(self, letter: Letter) -> str:
        """Return the reason why a letter's message cannot go back to its subject; empty if it can."""
        subject = letter.subject
        if not letter.complete:
            return "its dead letter does not hold the message"
        if _UNKNOWN in subject:
            return "its subject is not UTF-8, and its dead letter does not hold it"
        if (code := unpublishable(subject)) is not None:
            return f"its subject {Refusal(code, subject, native=False).reason}"
        taker = self.taker(subject)
        if taker is None:
            return "no stream that answers takes its subject"
        name, transform = taker["name"], taker.get("subject_transform") or {}
        if taker.get("no_ack"):
            return f"stream {name} confirms nothing (no_ack)"
        if name == self._letters:
            return "the dead letters' own stream takes its subject"
        if transform.get("dest") and matches(subject, (transform.get("src") or ">").encode()):
            return f"stream {name} transforms its subject at the ingress"
        if letter.rejected and name == letter.stream:
            return f"stream {name} has it already: it is the source of the rule that could not copy it"
        return ""


def redrive_needs(wanted: RedriveRequest) -> Iterator[Need]:
    """Yield the needs of `nats-bridge redrive STREAM`."""
    here, stream = wanted.connection, wanted.stream
    yield write(here, api_subject("STREAM.INFO", stream), "state of the dead letters' stream")
    yield from replays(here, stream)
    yield write(here, api_subject("STREAM.MSG.GET", stream), "reads the dead letters")
    for request in ("STREAM.INFO", "STREAM.CREATE", "STREAM.MSG.GET"):
        yield write(here, api_subject(request, JOURNAL), "keeps what was put back")
    yield from replays(here, JOURNAL)
    yield write(here, f"{JOURNAL}.{stream}.*", "keeps what was put back")
    yield write(here, api_subject("STREAM.LIST"), "finds the streams that take the messages")
    yield write(here, api_subject("STREAM.INFO", ANY_STREAM), "how far they are")
    yield write(here, api_subject("STREAM.MSG.GET", ANY_STREAM), "whether a replica has their end")
    yield from replays(here, ANY_STREAM)
    why = "puts the messages back" + ("" if wanted.subject else "; --subject allows less")
    yield write(here, wanted.subject or ">", why, computed=True)


async def redrive(
    settings: Settings,
    wanted: RedriveRequest,
    stop: asyncio.Event,
    report: Callable[[int, int], None] = lambda *_: None,
) -> RedriveResult:
    """Plan a redrive, and perform it if `wanted` says `apply`.

    Args:
        stop: set when it should end early, in a state that the next one resumes.
        report: called with the number of letters put back, and their total.

    Raises:
        StreamMissingError: the stream does not exist.
        RuleRefusedError: another redrive runs, the server refuses permanently, or no record can be stored.
        BridgeError: a server cannot be reached, or does not answer.
    """
    async with connected(settings, {wanted.connection}) as connections:
        connection = connections[wanted.connection]
        info = await existing_stream(connection, "", wanted.stream)
        streams = [each["config"] for each in (await connection.api.streams())[0]]
        return await Redriving(connection, wanted, info, Destinations(streams, wanted.stream), stop).run(report)


class _Message(NamedTuple):
    """A letter's message, ready to publish. `letters` are its sequence and others of the message; `taker` stores it."""

    letters: tuple[int, ...]
    taker: Json
    subject: bytes
    block: bytes
    payload: bytes
    identity: bytes


class Redriving:
    """Redrives the letters of one stream, whose `STREAM.INFO` is `info`; see `redrive`."""

    def __init__(
        self,
        connection: Connection,
        wanted: RedriveRequest,
        info: Json,
        destinations: Destinations,
        stop: asyncio.Event,
    ) -> None:
        self._wanted = wanted
        self._api = connection.api
        self._publisher = JournalPublisher(connection)
        self._journal = Journal(connection, self._publisher, info)
        self._destinations = destinations
        self._stop = stop
        self._done: list[int] = []  # not in the journal yet, as those in doubt
        self._doubtful: list[int] = []
        self.result = RedriveResult(wanted.apply)

    async def run(self, report: Callable[[int, int], None]) -> RedriveResult:
        """Plan, and redrive if wanted. Raises the errors of `redrive`."""
        await self._journal.read()
        self.result.unsettled = len(self._journal.pending.letters)
        if not self._wanted.apply:
            await self._plan()
            return self.result
        await self._journal.open()
        async with self._publisher:
            await self._settle()
            await self._plan()
            if not self.result.interrupted:
                total = self.result.redriven + len(self.result.letters)
                await self._put_back(lambda: report(self.result.redriven, total))
        return self.result

    async def _plan(self) -> None:
        """Read every dead letter once, headers only, and decide."""
        wanted, result, journal = self._wanted, self.result, self._journal
        info = await self._api.stream_info(wanted.stream)
        journal.stream = KnownStream.of(info)
        first, last = max(info["state"]["first_seq"], 1), info["state"]["last_seq"]
        direct = info["config"].get("retention", "limits") != "limits"
        letters = [
            letter
            async for _, reply, block, _ in messages(
                Replay(self._api, wanted.stream, headers_only=True, direct=direct), first, last
            )
            # The server appends that.
            if (letter := read_letter(AckReply.parse(reply).stream_sequence, without_last(block, b"Nats-Msg-Size")))
        ]
        result.held = len(letters)
        begun = {number for twins in journal.pending.letters for number in twins}
        twins: dict[tuple[str, int, bytes, bytes], list[int]] = {}
        for letter in letters:
            twins.setdefault(letter.message, []).append(letter.sequence)
        done = {message for message, numbers in twins.items() if not journal.done.isdisjoint(numbers)}
        for letter in letters:
            if letter.sequence in begun or not wanted.selects(letter):
                continue
            if letter.message in done:  # perhaps another consumer gave up the same message
                result.done += 1
            elif letter.sequence in journal.doubtful and not wanted.resend_doubtful:
                result.doubtful_before += 1
            elif obstacle := self._destinations.obstacle(letter):
                result.groups[Group(*letter.about, obstacle, False)] += 1
            elif wanted.most and len(result.letters) >= wanted.most:
                result.beyond += 1
            elif taker := self._destinations.taker(letter.subject):
                result.groups[Group(*letter.about, taker["name"], True)] += 1
                others = (number for number in twins[letter.message] if number != letter.sequence)
                result.letters.append((letter.sequence, *others))
                done.add(letter.message)

    async def _settle(self) -> None:
        """Finish the window that an earlier redrive began."""
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
                self._is_back(message)
            elif has_gaps and age * 1e9 >= _SAFE * (message.taker.get("duplicate_window") or _WINDOW):
                self._doubt(message)
            else:
                left.append(message)
                perhaps |= {message.identity} if has_gaps else set()
        if await self._publish(left, perhaps):
            await self._append()

    async def _put_back(self, report: Callable[[], None]) -> None:
        """Redrive the planned letters in order. `report` is called after each window."""
        letters, rate = self.result.letters, self._wanted.rate
        size = max(1, min(LARGEST, int(rate))) if rate else LARGEST
        clock = asyncio.get_running_loop().time
        due = clock()
        for start in range(0, len(letters), size):
            await happens(self._stop, within=due - clock())
            if self._stop.is_set():
                self.result.interrupted = "by a signal"
            if self.result.interrupted:
                break
            window = letters[start : start + size]
            due = max(due, clock()) + (len(window) / rate if rate else 0)
            messages = await self._read(window)
            takers = {message.taker["name"] for message in messages}
            floors = {name: await self._last_sequence(name) for name in takers}
            await self._append(Pending(tuple(one.letters for one in messages), floors))
            if not await self._publish(messages, set()):
                return  # the journal still has this window
            report()
        if self._done or self._doubtful or self._journal.pending.letters:
            await self._append()

    async def _last_sequence(self, stream: str) -> int:
        return int((await self._api.stream_info(stream))["state"]["last_seq"])

    async def _read(self, window: Iterable[tuple[int, ...]]) -> list[_Message]:
        found = await asyncio.gather(*(self._message(letters) for letters in window))
        return [message for message in found if message is not None]

    async def _message(self, letters: tuple[int, ...]) -> _Message | None:
        """Return the message to publish for a letter; None if the letter was removed."""
        stored = await self._api.stored_message(self._wanted.stream, letters[0])
        letter = read_letter(letters[0], stored.header_block) if stored is not None else None
        taker = self._destinations.taker(letter.subject) if letter is not None else None
        if stored is None or letter is None or taker is None:
            self.result.refused["removed before they could be read"] += 1
            return None
        identity = redrive_id(self._wanted.stream, self._journal.created, letters[0])
        block = restored(stored.header_block, identity)
        return _Message(letters, taker, letter.subject, block, stored.payload, identity)

    async def _publish(self, messages: Sequence[_Message], perhaps: set[bytes]) -> bool:
        """Publish each message once. Return False if a later redrive has to find out which were stored.

        Args:
            perhaps: ids of those that an earlier attempt may have stored, while their stream remembers its ids.
        """
        is_decided = True
        answers = await self._publisher.publish([(one.subject, one.block, one.payload) for one in messages])
        for message, pub_ack in zip(messages, answers, strict=True):
            place = f"by stream {message.taker['name']}: {pub_ack.description}"
            if pub_ack.kind in ("stored", "duplicate"):
                self._is_back(message)
            elif pub_ack.kind == "later" or pub_ack.leaves_open:
                self.result.interrupted = place
                is_decided &= not pub_ack.leaves_open and message.identity not in perhaps
            elif message.identity in perhaps:
                self._doubt(message)
            else:
                self.result.refused[f"refused {place}"] += 1
        return is_decided

    def _is_back(self, message: _Message) -> None:
        self.result.redriven += 1
        self._done += message.letters

    def _doubt(self, message: _Message) -> None:
        self.result.doubtful.append(message.letters[0])
        self._doubtful += message.letters

    async def _append(self, begin: Pending | None = None) -> None:
        await self._journal.append(done=self._done, doubtful=self._doubtful, begin=begin)
        self._done, self._doubtful = [], []

    async def _ids_since(self, stream: Json, floor: int) -> tuple[set[bytes], bool]:
        """Return the ids that a stream stored after a sequence, and whether sequences are missing there."""
        name, keeps_read = stream["name"], stream.get("retention", "limits") == "limits"
        while True:
            last = await self._last_sequence(name)
            recreated = last < floor  # its present messages do not show which messages it had stored before
            floor = 0 if recreated else floor
            ids: set[bytes] = set()
            seen, end = 0, floor
            replay = Replay(self._api, name, headers_only=True, direct=not keeps_read)
            async for _, reply, block, _ in messages(replay, floor + 1, last):
                seen, end = seen + 1, AckReply.parse(reply).stream_sequence
                ids.add(header_block.read(block, b"Nats-Msg-Id") or b"")
            # A replica may not have the end yet.
            if end == last or await self._api.stored_message(name, last) is None:
                return ids, recreated or seen < last - floor
            await LEADER_AWAY.pause()
