"""Plans a redrive: reads every dead letter of a stream once, headers only."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from nats_bridge.bridge.client.jetstream_api import JetStreamApi, Json
from nats_bridge.bridge.consuming.ack_reply import AckReply
from nats_bridge.bridge.consuming.replay import Replay
from nats_bridge.bridge.jobs.redrive.destinations import Destinations
from nats_bridge.bridge.jobs.redrive.journal import Journal
from nats_bridge.bridge.jobs.redrive.letter import Letter, Selection, read_letter, without_last
from nats_bridge.transforms.republish import StoredMessage
from nats_bridge.transforms.timestamp import rfc3339_nano

_TOGETHER = 64  # letters whose messages are looked up at a time
_Any = TypeVar("_Any")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The request.

    Attributes:
        stream: the dead letters' stream.
        letters: the name of the connection that holds it.
        target: that of the connection of the streams that take the messages.
        selection: which letters.
        apply: whether anything is done.
        rate: messages a second at most; 0 for no limit.
        resend_doubtful: whether letters in doubt go again.
    """

    stream: str
    letters: str = "default"
    target: str = "default"
    selection: Selection = field(default_factory=Selection)
    apply: bool = False
    rate: float = 0
    resend_doubtful: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """Similar letters.

    Attributes:
        stream, consumer, reason: as in the letters.
        outcome: where they go, or why they cannot go.
        redriven: whether they go.
    """

    stream: str
    consumer: str
    reason: str
    outcome: str
    redriven: bool


@dataclass(slots=True)
class Plan:
    """The plan.

    Attributes:
        held: dead letters in the stream.
        others: its messages that are no dead letters.
        letters: what is redriven, in order: each letter's sequence, with those of the same message behind it.
        groups: the letters that the filters select, counted.
        done: selected letters that were redriven before, or whose message was.
        doubtful: selected letters of which it is unknown whether they were.
        beyond: selected letters left out because there are more than wanted.
    """

    held: int = 0
    others: int = 0
    letters: list[tuple[int, ...]] = field(default_factory=list)
    groups: Counter[Group] = field(default_factory=Counter)
    done: int = 0
    doubtful: int = 0
    beyond: int = 0

    @property
    def stuck(self) -> int:
        """Selected letters that cannot be redriven."""
        return sum(number for group, number in self.groups.items() if not group.redriven)


async def plan(
    wanted: Wanted, api: JetStreamApi, info: Json, journal: Journal, destinations: Destinations, sources: JetStreamApi
) -> Plan:
    """Decide.

    Args:
        wanted: the request.
        api: the API of the dead letters' connection.
        info: `STREAM.INFO` of their stream.
        journal: what was redriven, already read.
        destinations: the streams that take it.
        sources: the API of the connection that holds the streams of the messages.

    Raises:
        ApiError: a server cannot be asked.
    """
    made, selection = Plan(), wanted.selection
    letters = await _with_messages(await _letters(api, info, made), sources)
    begun = {number for twins in journal.pending.letters for number in twins}
    twins: dict[tuple[str, int, bytes, bytes], list[int]] = {}
    for letter, _ in letters:
        twins.setdefault(letter.message, []).append(letter.sequence)
    done = {message for message, numbers in twins.items() if any(number in journal.done for number in numbers)}
    for letter, is_there in letters:
        # An advisory alone does not hold the subject of its message, which was removed.
        meant = selection if letter.subject else replace(selection, subject="")
        if letter.sequence in begun or not meant.selects(letter):
            continue
        if letter.message in done:  # perhaps another consumer gave up the same message
            made.done += 1
        elif letter.sequence in journal.doubtful and not wanted.resend_doubtful:
            made.doubtful += 1
        elif not is_there:
            _count(made, letter, "its message was removed", redriven=False)
        elif obstacle := destinations.obstacle(letter):
            _count(made, letter, obstacle, redriven=False)
        elif selection.most and len(made.letters) >= selection.most:
            made.beyond += 1
        else:
            taker = destinations.taker(letter.subject)
            assert taker is not None
            _count(made, letter, taker.name, redriven=True)
            others = (number for number in twins[letter.message] if number != letter.sequence)
            made.letters.append((letter.sequence, *others))
            done.add(letter.message)
    return made


def _count(made: Plan, letter: Letter, outcome: str, *, redriven: bool) -> None:
    consumer = letter.consumer or "(rejected copy)"
    made.groups[Group(letter.stream, consumer, letter.reason, outcome, redriven)] += 1


async def _letters(api: JetStreamApi, info: Json, made: Plan) -> list[Letter]:
    stream, state = info["config"]["name"], info["state"]
    direct = info["config"].get("retention", "limits") != "limits"
    replay = Replay(api, stream, headers_only=True, direct=direct)
    found: list[Letter] = []
    alone: list[int] = []
    async with contextlib.aclosing(replay.between(max(state["first_seq"], 1), state["last_seq"])) as batches:
        async for batch in batches:
            for _, reply, block, _ in batch:
                at = AckReply.parse(reply)
                stored = without_last(block, b"Nats-Msg-Size")  # which the server appends to headers alone
                letter = read_letter(at.stream_sequence, at.time_ns, stored, None)
                if letter is not None:
                    found.append(letter)
                elif b"\nNats-Subject: $JS.EVENT.ADVISORY.CONSUMER." in stored:
                    alone.append(at.stream_sequence)
                else:
                    made.others += 1
    for numbers in _pieces(alone):
        for letter in await asyncio.gather(*(_alone(api, stream, number) for number in numbers)):
            if letter is not None:
                found.append(letter)
            else:
                made.others += 1
    made.held = len(found)
    found.sort(key=lambda letter: letter.sequence)
    return found


def _pieces(several: Sequence[_Any]) -> Iterable[Sequence[_Any]]:
    return (several[start : start + _TOGETHER] for start in range(0, len(several), _TOGETHER))


async def _alone(api: JetStreamApi, stream: str, sequence: int) -> Letter | None:
    """An advisory alone: what it is about is in its payload."""
    stored = await api.stored_message(stream, sequence)
    if stored is None:
        return None
    return read_letter(sequence, stored.time_ns, stored.header_block, stored.payload)


async def _with_messages(letters: Sequence[Letter], sources: JetStreamApi) -> list[tuple[Letter, bool]]:
    """Each letter, and whether its message is still somewhere; then an advisory alone says what its twins say."""
    known = {letter.message for letter in letters if letter.subject}
    found: list[tuple[Letter, bool]] = []
    for together in _pieces(letters):
        messages = await asyncio.gather(*(_looked_up(letter, sources) for letter in together))
        for letter, message in zip(together, messages, strict=True):
            if message is not None and not letter.subject:
                # Letters by the rules of 2.9 hold no time.
                stamp = b"" if letter.message in known else rfc3339_nano(message.time_ns)
                letter = replace(letter, subject=message.subject, stamp=stamp)
            found.append((letter, letter.complete or message is not None))
    return found


async def _looked_up(letter: Letter, sources: JetStreamApi) -> StoredMessage | None:
    return None if letter.complete else await message_of(letter, sources)


async def message_of(letter: Letter, sources: JetStreamApi) -> StoredMessage | None:
    """The message of a letter that does not hold it, from its stream; None if it was removed, or another one is there.

    Raises:
        ApiError: the server cannot be asked, or the user may not read the stream.
    """
    message = await sources.stored_message(letter.stream, letter.original)
    # A recreated stream has other messages under these numbers, which are younger than what was said of the old ones.
    if message is None or message.time_ns > letter.time_ns or (letter.stamp and not _is_stamped(message, letter)):
        return None
    return message


def _is_stamped(message: StoredMessage, letter: Letter) -> bool:
    return rfc3339_nano(message.time_ns) == letter.stamp
