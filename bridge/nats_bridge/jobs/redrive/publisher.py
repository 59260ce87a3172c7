"""Publishes messages, and returns their streams' answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from nats_bridge.client.connection import Connection
from nats_bridge.client.permission_violations import refused_publication
from nats_bridge.client.pub_ack import PubAck
from nats_bridge.client.raw_requests import RawRequests
from nats_bridge.errors import RuleRefusedError

_ANSWER: Final = 5.0  # seconds


class Publisher:
    """Publishes on one connection, for one caller at a time.

    Args:
        connection: the connection.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._requests = RawRequests(connection)
        self._subjects: set[bytes] = set()

    async def open(self) -> None:
        """Subscribe to the answers."""
        self._refused: asyncio.Future[RuleRefusedError] = asyncio.get_running_loop().create_future()
        self._connection.on_refusal(self._on_refusal)
        await self._requests.open()

    async def close(self) -> None:
        """Stop waiting for answers."""
        self._connection.forget(self._on_refusal)
        await self._requests.close()

    async def publish(self, messages: Sequence[tuple[bytes, bytes, bytes]]) -> list[PubAck]:
        """Publish subjects, header blocks and payloads; return the answers, which come within five seconds or not.

        Raises:
            RuleRefusedError: the user may not publish on one of the subjects.
        """
        self._subjects = {subject for subject, _, _ in messages}
        asking = asyncio.gather(*(self._requests.ask(*each, within=_ANSWER) for each in messages))
        waiting: set[asyncio.Future[Any]] = {asking, self._refused}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if self._refused.done():
            asking.cancel()
            raise self._refused.result()
        return [PubAck.of(answer) for answer in asking.result()]

    def _on_refusal(self, text: str) -> None:
        subject = refused_publication(text)
        if subject in self._subjects and not self._refused.done():
            advice = f"allow the user to publish to '{subject.decode()}'; --permissions prints all that it needs"
            self._refused.set_result(RuleRefusedError(f"the server refuses ({text}): {advice}"))
