"""A redrive from its connections to its result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from nats_bridge.bridge.client.connection import Connection
from nats_bridge.bridge.client.connection_pool import connected
from nats_bridge.bridge.client.jetstream_api import Json
from nats_bridge.bridge.consuming.missing_streams import named_stream
from nats_bridge.bridge.jobs.redrive.destinations import Destinations
from nats_bridge.bridge.jobs.redrive.journal import JOURNAL, Journal
from nats_bridge.bridge.jobs.redrive.plan import Plan, Wanted, plan
from nats_bridge.bridge.jobs.redrive.redriving import Outcome, Redriving
from nats_bridge.bridge.permissions.need import ANY_STREAM, Need, api_subject, write
from nats_bridge.bridge.permissions.reading import replays
from nats_bridge.bridge.settings import Settings

_ADVICE: Final = "give the one that holds dead letters"


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


Report = Callable[[int, int, str], None]
"""Called with how many letters are put back, of how many, and what is waited for, if anything."""


def redrive_needs(stream: str, letters: str, target: str, *, source: str = "", subject: str = "") -> Iterator[Need]:
    """The needs of `nats-bridge redrive STREAM`.

    Args:
        stream: the dead letters' stream.
        letters: the connection that holds it.
        target: the connection of the streams that take the messages.
        source: the stream that held the messages; empty for any.
        subject: the messages' subject, perhaps with wildcards; empty for any.
    """
    held = source or ANY_STREAM
    yield write(letters, api_subject("STREAM.INFO", stream), "state of the dead letters' stream")
    yield from replays(letters, stream)
    yield write(letters, api_subject("STREAM.MSG.GET", stream), "reads the dead letters")
    for request in ("STREAM.INFO", "STREAM.CREATE", "STREAM.MSG.GET"):
        yield write(letters, api_subject(request, JOURNAL), "keeps what was put back")
    yield from replays(letters, JOURNAL)
    yield write(letters, f"{JOURNAL}.{stream}.*", "keeps what was put back")
    yield write(target, api_subject("STREAM.LIST"), "finds the streams that take the messages")
    yield write(target, api_subject("STREAM.INFO", held), "how far they are")
    yield write(target, api_subject("STREAM.MSG.GET", held), "reads messages that their dead letters do not hold")
    yield from replays(target, held)
    why = "puts the messages back" + ("" if subject else "; --subject allows less")
    yield write(target, subject or ">", why, computed=True)


async def redrive(settings: Settings, wanted: Wanted, stop: asyncio.Event, report: Report = lambda *_: None) -> Result:
    """Look, and put dead letters back where that is wanted.

    Args:
        settings: with the connections.
        wanted: what to do.
        stop: set when it should end early, in a state that the next one resumes.
        report: see `Report`.

    Raises:
        StreamMissingError: there is no such stream.
        RuleRefusedError: another redrive runs, or the server refuses permanently.
        BridgeError: a server cannot be reached or asked.
    """
    async with connected(settings, {wanted.letters, wanted.target}) as connections:
        return await _redrive(connections[wanted.letters], connections[wanted.target], wanted, stop, report)


async def _redrive(
    letters: Connection, target: Connection, wanted: Wanted, stop: asyncio.Event, report: Report
) -> Result:
    info = await named_stream(letters, wanted.stream, _ADVICE)
    destinations = await Destinations.look(target.api, info)
    journal = Journal(letters, wanted.stream, info["created"], info["config"].get("num_replicas", 1))
    await journal.read()
    unsettled = len(journal.pending.letters)

    async def planned(state: Json) -> Plan:
        return await plan(wanted, letters.api, state, journal, destinations, target.api)

    if not wanted.apply:
        return Result(await planned(info), unsettled, None)
    total = 0

    def done(number: int, waits_for: str) -> None:
        report(number, total, waits_for)

    redriving = Redriving(wanted, info["created"], letters, target, destinations, journal, stop, done)
    await journal.open(stop, lambda what: report(redriving.outcome.redriven, total, what))
    await redriving.open()
    try:
        total = unsettled
        await redriving.settle()
        made = await planned(await named_stream(letters, wanted.stream, _ADVICE))
        if not redriving.outcome.interrupted:
            total = redriving.outcome.redriven + len(made.letters)
            await redriving.run(made.letters)
    finally:
        await redriving.close()
        await journal.close()
    return Result(made, unsettled, redriving.outcome)
