"""Messages that a stream has stored for certain, though its servers and leaders come and go."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import nats.errors

from nats_bridge.client.wire import WireClient
from tests.live.raw_messages import PASSING
from tests.live.until import LIMIT

_WAIT = 1.0  # seconds for one answer; a request without an answer is sent again
_PAUSE = 0.02


class AnsweredLoad:
    """Publishes one message after the other, each again until the stream has answered.

    Attributes:
        last: the highest sequence that the stream has answered with. A message that was sent again may be stored
            twice: what counts is what the stream holds.
    """

    def __init__(self, client: WireClient, subject: str) -> None:
        self.last = 0
        self._client = client
        self._subject = subject
        self._number = 0

    async def api(self, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """A JetStream API request; again while there is no leader, or while an error is to pass."""
        data = json.dumps(body).encode() if body else b""
        while True:
            answer = await self._ask(f"$JS.API.{subject}", data)
            error = answer.get("error", {}) if answer is not None else {}
            if answer is not None and error.get("code") != 503 and error.get("err_code") not in PASSING:
                return answer
            await asyncio.sleep(_PAUSE)

    async def store(self, messages: int) -> int:
        """Have so many more messages stored; the last one's sequence."""
        async with asyncio.timeout(LIMIT):
            for _ in range(messages):
                self._number += 1
                self.last = max(self.last, await self._stored(b"%d" % self._number))
        return self.last

    @asynccontextmanager
    async def loading(self) -> AsyncIterator[None]:
        """Publish without a pause while the body runs."""
        enough = asyncio.Event()

        async def publish() -> None:
            while not enough.is_set():
                await self.store(1)

        publishing = asyncio.create_task(publish())
        try:
            yield
        finally:
            enough.set()
            await publishing

    async def _stored(self, payload: bytes) -> int:
        while True:
            answer = await self._ask(self._subject, payload)
            if answer is not None and "seq" in answer:
                return int(answer["seq"])
            await asyncio.sleep(_PAUSE)

    async def _ask(self, subject: str, data: bytes) -> dict[str, Any] | None:
        with contextlib.suppress(nats.errors.Error, OSError):
            reply = await self._client.request(subject, data, timeout=_WAIT)
            answer: dict[str, Any] = json.loads(reply.data)
            return answer
        return None


@asynccontextmanager
async def answered_load(urls: Sequence[str], subject: str) -> AsyncIterator[AnsweredLoad]:
    """A load with a connection of its own, which comes back whenever a server does."""

    async def ignored(_: Exception) -> None:
        pass

    client = WireClient()
    await client.connect(
        list(urls),
        max_reconnect_attempts=-1,
        reconnect_time_wait=_PAUSE,  # type: ignore[arg-type]  # any number of seconds works
        error_cb=ignored,
    )
    try:
        yield AnsweredLoad(client, subject)
    finally:
        await client.close()
