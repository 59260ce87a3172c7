"""The run's own connections to the servers: patient, reconnecting, never through the wires that are cut."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from typing import Any

from nats_conformance.catalogue.case import Message
from nats_conformance.errors import SubjectError
from nats_conformance.raw_client import Collected, Delivered, RawClient

_PATIENCE = 5.0  # seconds until a request counts as without an answer; the next one is tried then
_LIMIT = 120.0  # seconds until there must have been a good answer
_PAUSE = 0.1
_PAGE = 500  # messages asked for at once
_PAGE_WAIT, _EMPTY_PAGES = 5, 2  # seconds until a page ends, and how many of them in a row without messages are the end


class Peer:
    """A connection to one of several servers; it moves to another when its own goes.

    Args:
        urls: the servers' addresses, a user name and password included where they want one.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = list(urls)
        self._turn = 0
        self._client: RawClient | None = None

    async def client(self) -> RawClient:
        """The connection, opened if there is none; waits for a server without end."""
        while self._client is None:
            url = self._urls[self._turn % len(self._urls)]
            self._turn += 1
            try:
                async with asyncio.timeout(_PATIENCE):
                    self._client = await RawClient.connect(url)
            except (SubjectError, TimeoutError):
                await asyncio.sleep(_PAUSE)
        return self._client

    async def drop(self) -> None:
        """Leave this server: the next use connects again."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def ask_all(self, messages: Sequence[Message]) -> list[Delivered | None]:
        """Publish all at once; the answers in their order, None without an answer, whose outcome is unknown."""
        client = await self.client()
        tasks = [asyncio.create_task(client.ask(message)) for message in messages]
        await asyncio.wait(tasks, timeout=_PATIENCE)
        answers: list[Delivered | None] = []
        broken = False
        for task in tasks:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
                answers.append(None)
            elif task.exception() is not None:
                broken = True
                answers.append(None)
            else:
                answers.append(task.result())
        if broken:
            await self.drop()
        return answers

    async def try_api(self, subject: str, body: object = None) -> dict[str, Any] | None:
        """One JetStream API request; None without an answer."""
        client = await self.client()
        try:
            async with asyncio.timeout(_PATIENCE):
                return await client.api(subject, body)
        except (SubjectError, TimeoutError):
            await self.drop()
            return None

    async def api(self, subject: str, body: object = None) -> dict[str, Any]:
        """A JetStream API request, repeated until it is answered with something else than a passing trouble.

        Raises:
            SubjectError: no good answer within two minutes.
        """
        answer: dict[str, Any] | None = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LIMIT):
                while True:
                    answer = await self.try_api(subject, body)
                    if answer is not None and answer.get("error", {}).get("code", 0) not in (408, 500, 503):
                        return answer
                    await asyncio.sleep(_PAUSE)
        raise SubjectError(f"{subject}: no good answer within {_LIMIT:g} s; the last was {answer}")

    async def state(self, stream: str) -> dict[str, Any]:
        """A stream's state."""
        answer = await self.api(f"STREAM.INFO.{stream}")
        if "state" not in answer:
            raise SubjectError(f"{stream}: {answer.get('error')}")
        state: dict[str, Any] = answer["state"]
        return state

    async def read(self, stream: str) -> list[Delivered] | None:
        """Everything that a stream holds, as deliveries of a consumer; None: it was interrupted.

        Page by page, or the server would cut off who reads more slowly than it writes.
        """
        client = await self.client()
        self._turn += 1
        inbox = f"_INBOX.chaos.read.{stream}.{self._turn}".encode()
        pages: Collected | None = None
        try:
            pages = await client.subscribe(inbox)
            config = {"ack_policy": "none", "mem_storage": True, "num_replicas": 1, "inactive_threshold": 60 * 10**9}
            answer = await client.api(f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": config})
            if "error" in answer:
                return None
            name, rows, pending, empty = answer["name"], [], 1, 0
            body = json.dumps({"batch": _PAGE, "expires": _PAGE_WAIT * 10**9}).encode()
            # A message that the server cannot read stays pending.
            while pending and empty < _EMPTY_PAGES:
                client.publish(Message(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}".encode(), payload=body), inbox)
                wanted = _PAGE
                while wanted and pending:
                    if not await client.arrived(pages, 1, 30):
                        return None
                    taken = list(pages.deliveries)
                    del pages.deliveries[: len(taken)]
                    found = [each for each in taken if each.reply]  # without one it is a status: the page ends
                    rows += found
                    empty = 0 if found else empty + 1
                    wanted = wanted - len(found) if len(found) == len(taken) else 0
                    pending = _pending(rows[-1].reply) if rows else pending
            await client.api(f"CONSUMER.DELETE.{stream}.{name}")
        except SubjectError:
            await self.drop()
            return None
        finally:
            if pages is not None:
                client.unsubscribe(pages)
        return rows


def place_of(reply: bytes) -> tuple[int, int]:
    """Sequence in the stream and time in nanoseconds, from the reply subject of a consumer's delivery.

    `$JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<time ns>.<pending>`, or with domain and
    account before the stream.
    """
    tokens = reply.split(b".")
    at = 5 if len(tokens) == 9 else 7
    return int(tokens[at]), int(tokens[at + 2])


def _pending(reply: bytes) -> int:
    tokens = reply.split(b".")
    return int(tokens[8 if len(tokens) == 9 else 10])
