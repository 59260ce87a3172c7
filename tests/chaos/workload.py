"""The workload: producers that know what was stored, a worker that gives jobs up, and subscribers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Callable
from typing import Any

from nats_conformance.catalogue.case import Message
from nats_conformance.errors import SubjectError
from tests.chaos.history import Historian, digest_of, text_of
from tests.chaos.messages import addition, event, job, lease, numbered, passing, plan, scratch, setting
from tests.chaos.peers import Peer

ADVISORY = b"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.JOBS.workers"

_MAKERS: dict[str, Callable[[int, random.Random], Message]] = {
    "ORDERS": lambda number, chance: numbered(b"orders", number, chance),
    "LEGACY": lambda number, chance: numbered(b"legacy", number, chance),
    "JOBS": job,
    "TASKS": lambda number, chance: numbered(b"tasks", number, chance),
    "KV_SETTINGS": setting,
    "events": event,
    "CLICKS": lambda number, chance: addition(b"clicks", number, chance),
    "VIEWS": lambda number, chance: addition(b"views", number, chance),
    "PLANS": plan,
    "LEASES": lease,
    "PASSES": passing,
    "SCRATCH": scratch,
}
_LARGEST_BATCH = 40


def row_of(message: Message) -> list[Any]:
    """A message in the history: subject, header block, size and digest of the payload."""
    return [text_of(message.subject), text_of(message.header_block), len(message.payload), digest_of(message.payload)]


class Producer:
    """Publishes numbered messages for one stream, or for an ingress rule, in batches, and waits for every answer.

    Args:
        place: the stream, or `events`.
        peer: the connection.
        historian: records what was sent and stored.
        seed: of the messages.
        rate: messages a second, at most; 0 for as fast as answers come.

    Attributes:
        sent: how many messages it has published.
        stored: how many of them the stream has confirmed.
        turn: held while a batch is sent and answered, and by what needs the stream for itself.
    """

    def __init__(self, place: str, peer: Peer, historian: Historian, seed: object, rate: float) -> None:
        self.place = place
        self.sent = 0
        self.stored = 0
        self.turn = asyncio.Lock()
        self._peer = peer
        self._historian = historian
        self._chance = random.Random(f"{seed}/{place}")
        self._rate = rate

    async def run(self, wanted: Callable[[], bool]) -> None:
        """Publish batch after batch while more are wanted."""
        while wanted():
            size = self._chance.randrange(1, _LARGEST_BATCH)
            began = self._historian.now
            await self.batch(size)
            if self._rate:
                await asyncio.sleep(max(0.0, began + size / self._rate - self._historian.now))
            else:
                await asyncio.sleep(0)

    async def batch(self, size: int) -> int:
        """Publish one batch; the last sequence that the stream gave, 0 if it gave none."""
        async with self.turn:
            return await self._batch(size)

    async def _batch(self, size: int) -> int:
        make = _MAKERS[self.place]
        numbers = range(self.sent + 1, self.sent + size + 1)
        self.sent += size
        messages = [make(number, self._chance) for number in numbers]
        began = self._historian.record(
            "sent",
            to=self.place,
            rows=[[number, *row_of(message)] for number, message in zip(numbers, messages, strict=True)],
        )
        answers = await self._peer.ask_all(messages)
        stored: list[list[int]] = []
        unsure: list[int] = []
        refused: list[list[Any]] = []
        for number, found in zip(numbers, answers, strict=True):
            answer: Any = {}
            if found is not None:
                with contextlib.suppress(ValueError):
                    answer = json.loads(found.message.payload)
            if answer.get("seq") and "error" not in answer:
                stored.append([number, answer["seq"]])
            elif answer.get("error"):
                refused.append([number, answer["error"].get("description", "")])
            else:
                unsure.append(number)
        self.stored += len(stored)
        self._historian.record("stored", to=self.place, since=began, rows=stored, unsure=unsure, refused=refused)
        return max((sequence for _, sequence in stored), default=0)


class Worker:
    """Takes jobs and gives half of them up, so that the server sends advisories."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._round = 0

    async def run(self, wanted: Callable[[], bool]) -> None:
        """Fetch and answer while wanted."""
        while wanted():
            try:
                await self._fetch()
            except SubjectError:
                await self._peer.drop()

    async def _fetch(self) -> None:
        client = await self._peer.client()
        self._round += 1
        inbox = b"_INBOX.chaos.worker.%d" % self._round
        jobs = await client.subscribe(inbox)
        try:
            body = json.dumps({"batch": 20, "expires": 10**9}).encode()
            client.publish(Message(b"$JS.API.CONSUMER.MSG.NEXT.JOBS.workers", payload=body), inbox)
            answered = 0
            while await client.arrived(jobs, answered + 1, 1.5):
                for delivered in jobs.deliveries[answered:]:
                    answered += 1
                    if not delivered.reply:
                        return  # a status: no more for now
                    number = int(delivered.reply.split(b".")[-4])
                    client.publish(Message(delivered.reply, payload=b"+TERM chaos" if number % 2 else b"+ACK"))
        finally:
            client.unsubscribe(jobs)


class Listener:
    """Subscribes to a subject and records everything on it, in order.

    Args:
        peer: the connection.
        subject: may hold wildcards.
        name: for the history.
        historian: writes the history.
        keeps_bodies: record the payload as well (advisories), not only its digest.
    """

    def __init__(
        self, peer: Peer, subject: bytes, name: str, historian: Historian, *, keeps_bodies: bool = False
    ) -> None:
        self.received = 0
        self.newest = 0
        self._peer = peer
        self._subject = subject
        self._name = name
        self._historian = historian
        self._keeps_bodies = keeps_bodies

    async def run(self, listening: asyncio.Event) -> None:
        """Listen until cancelled; `listening` is set when it does."""
        while True:
            with contextlib.suppress(SubjectError):
                client = await self._peer.client()
                collected = await client.subscribe(self._subject)
                self._historian.record("listening", name=self._name)
                listening.set()
                while True:
                    # A limit only so that the loop turns; silence means nothing.
                    if not await client.arrived(collected, 1, 60):
                        continue
                    taken = list(collected.deliveries)
                    del collected.deliveries[: len(taken)]
                    self._record([delivered.message for delivered in taken])
            await self._peer.drop()

    def _record(self, messages: list[Message]) -> None:
        self.received += len(messages)
        rows = []
        for message in messages:
            row = row_of(message)
            if self._keeps_bodies:
                row.append(text_of(message.payload))
            rows.append(row)
            place = message.header_block.rfind(b"\r\nNats-Sequence: ")
            if place >= 0:
                self.newest = int(message.header_block[place + 17 :].split(b"\r\n", 1)[0])
        self._historian.record("received", name=self._name, rows=rows)
