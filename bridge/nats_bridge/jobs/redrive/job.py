"""A redrive from its connection to its result."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from nats_bridge.client.connection import Connection
from nats_bridge.client.connection_pool import connected
from nats_bridge.client.jetstream_api import JetStreamApi, Json
from nats_bridge.consuming.ack_reply import AckReply
from nats_bridge.consuming.missing_streams import named_stream
from nats_bridge.consuming.replay import Replay
from nats_bridge.jobs.redrive.destinations import Destinations
from nats_bridge.jobs.redrive.journal import JOURNAL, Journal
from nats_bridge.jobs.redrive.letter import Letter, Wanted, read_letter, without_last
from nats_bridge.jobs.redrive.publisher import Publisher
from nats_bridge.jobs.redrive.redriving import Outcome, Redriving
from nats_bridge.permissions.need import ANY_STREAM, Need, api_subject, write
from nats_bridge.permissions.reading import replays
from nats_bridge.settings import Settings

_ADVICE: Final = "give the one that holds dead letters"


class Group(NamedTuple):
    """Similar letters, and where they go: `outcome` is that, or why they do not go (`redriven`)."""

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
        letters: what is redriven, in order: each letter's sequence, with those of the same message behind it.
        groups: the letters that are selected, counted.
        done: selected letters that were redriven before, or whose message was.
        doubtful: selected letters of which it is unknown whether they were.
        beyond: selected letters left out because there are more than wanted.
    """

    held: int = 0
    letters: list[tuple[int, ...]] = field(default_factory=list)
    groups: Counter[Group] = field(default_factory=Counter)
    done: int = 0
    doubtful: int = 0
    beyond: int = 0

    @property
    def stuck(self) -> int:
        """Selected letters that cannot be redriven."""
        return sum(number for group, number in self.groups.items() if not group.redriven)


@dataclass(frozen=True, slots=True)
class Result:
    """The plan and the outcome.

    Attributes:
        plan: what would be done; after what an interrupted redrive had left was settled, if `outcome` is there.
        unsettled: letters that an interrupted redrive had begun.
        outcome: what was done; None where nothing was to be done.
    """

    plan: Plan
    unsettled: int
    outcome: Outcome | None

    @property
    def good(self) -> bool:
        """Whether every letter that is selected is put back, or could be."""
        undone = self.outcome is not None and not self.outcome.complete
        return not (self.plan.stuck or self.plan.doubtful or undone)


Report = Callable[[int, int], None]
"""Called with how many letters are put back, of how many."""


def redrive_needs(wanted: Wanted) -> Iterator[Need]:
    """The needs of `nats-bridge redrive STREAM`."""
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


async def redrive(settings: Settings, wanted: Wanted, stop: asyncio.Event, report: Report = lambda *_: None) -> Result:
    """Look, and put dead letters back where that is wanted.

    Args:
        settings: with the connection.
        wanted: what to do.
        stop: set when it should end early, in a state that the next one resumes.
        report: see `Report`.

    Raises:
        StreamMissingError: there is no such stream.
        RuleRefusedError: another redrive runs, the server refuses permanently, or no record can be stored.
        BridgeError: a server cannot be reached or asked.
    """
    async with connected(settings, {wanted.connection}) as connections:
        return await _redrive(connections[wanted.connection], wanted, stop, report)


async def _redrive(connection: Connection, wanted: Wanted, stop: asyncio.Event, report: Report) -> Result:
    api, publisher = connection.api, Publisher(connection)
    info = await named_stream(connection, wanted.stream, _ADVICE)
    destinations = Destinations([each["config"] for each in (await api.streams())[0]], wanted.stream)
    journal = Journal(api, publisher, info)
    await journal.read()
    unsettled = len(journal.pending.letters)
    if not wanted.apply:
        return Result(await _plan(wanted, api, info, journal, destinations), unsettled, None)
    redriving = Redriving(wanted, info["created"], api, publisher, destinations, journal, stop)
    await journal.open()
    await publisher.open()
    try:
        await redriving.settle()
        made = await _plan(wanted, api, await named_stream(connection, wanted.stream, _ADVICE), journal, destinations)
        if not redriving.outcome.interrupted:
            total = redriving.outcome.redriven + len(made.letters)
            await redriving.run(made.letters, lambda number: report(number, total))
    finally:
        await publisher.close()
    return Result(made, unsettled, redriving.outcome)


async def _plan(wanted: Wanted, api: JetStreamApi, info: Json, journal: Journal, destinations: Destinations) -> Plan:
    """Read every dead letter once, headers only, and decide."""
    letters = await _letters(api, info)
    made = Plan(held=len(letters))
    begun = {number for twins in journal.pending.letters for number in twins}
    twins: dict[tuple[str, int, bytes, bytes], list[int]] = {}
    for letter in letters:
        twins.setdefault(letter.message, []).append(letter.sequence)
    done = {message for message, numbers in twins.items() if any(number in journal.done for number in numbers)}
    for letter in letters:
        if letter.sequence in begun or not wanted.selects(letter):
            continue
        if letter.message in done:  # perhaps another consumer gave up the same message
            made.done += 1
        elif letter.sequence in journal.doubtful and not wanted.resend_doubtful:
            made.doubtful += 1
        elif obstacle := destinations.obstacle(letter):
            made.groups[Group(*letter.about, obstacle, False)] += 1
        elif wanted.most and len(made.letters) >= wanted.most:
            made.beyond += 1
        else:
            taker = destinations.taker(letter.subject)
            assert taker is not None
            made.groups[Group(*letter.about, taker["name"], True)] += 1
            others = (number for number in twins[letter.message] if number != letter.sequence)
            made.letters.append((letter.sequence, *others))
            done.add(letter.message)
    return made


async def _letters(api: JetStreamApi, info: Json) -> list[Letter]:
    stream, state = info["config"]["name"], info["state"]
    direct = info["config"].get("retention", "limits") != "limits"
    replay = Replay(api, stream, headers_only=True, direct=direct)
    found: list[Letter] = []
    async with contextlib.aclosing(replay.between(max(state["first_seq"], 1), state["last_seq"])) as batches:
        async for batch in batches:
            for _, reply, block, _ in batch:
                stored = without_last(block, b"Nats-Msg-Size")  # which the server appends to headers alone
                if letter := read_letter(AckReply.parse(reply).stream_sequence, stored):
                    found.append(letter)
    return sorted(found, key=lambda letter: letter.sequence)
