"""A source and a target stream, and whether the target holds every message of the source exactly once."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Self

import nats.errors

from nats_transforms.republish import StoredMessage
from nats_transforms.source_record import HEADER, TWIN_HEADER, SourceRecord, first_record
from tests.live.raw_messages import RawPeer
from tests.live.stored_messages import stored_messages
from tests.live.until import until


def record_of(message: StoredMessage) -> SourceRecord:
    """Where a copy says that it comes from."""
    record = first_record(message.header_block, HEADER) or first_record(message.header_block, TWIN_HEADER)
    assert record is not None, message
    return record


class Copies:
    """A stream that is copied from, and one that is copied to, with subjects of their own."""

    def __init__(self, peer: RawPeer, target_peer: RawPeer, name: str) -> None:
        self.peer = peer
        self.target_peer = target_peer
        self.name = name
        self.target = f"T{name}"

    @classmethod
    async def make(
        cls,
        peer: RawPeer,
        name: str,
        *,
        target_peer: RawPeer | None = None,
        source: dict[str, Any] | None = None,
        target: dict[str, Any] | None = None,
    ) -> Self:
        """Create both streams."""
        copies = cls(peer, target_peer or peer, name)
        await peer.create_stream(**{"name": name, "subjects": [f"{name}.>"]} | (source or {}))
        await copies.target_peer.create_stream(
            **{"name": copies.target, "subjects": [f"{copies.target}.>"]} | (target or {})
        )
        return copies

    def rule(self, **more: Any) -> dict[str, Any]:
        """A rule that copies everything; `entry` adds to its source."""
        entry = {
            "name": self.name,
            "subject_transforms": [{"src": f"{self.name}.>", "dest": f"{self.target}.>"}],
            **more.pop("entry", {}),
        }
        return {"name": "rule", "kind": "sources", "stream": self.target, "sources": [entry], **more}

    async def state(self) -> dict[str, Any]:
        """The target's state."""
        return await _state_of(self.target_peer, self.target)

    async def source_end(self) -> int:
        """The sequence of the source's last message."""
        return int((await _state_of(self.peer, self.name))["last_seq"])

    async def holds(self, messages: int) -> None:
        """Wait until the target holds at least so many messages."""

        async def there() -> bool:
            return int((await self.state())["messages"]) >= messages

        await until(there)

    async def stored(self) -> list[StoredMessage]:
        """What the target holds."""
        return await stored_messages(self.target_peer, self.target, int((await self.state())["messages"]))

    async def source_sequences(self) -> list[int]:
        """The source's sequences of the copies, in the order in which the target stored them."""
        return [record_of(message).sequence for message in await self.stored()]

    async def are_exact(self) -> list[StoredMessage]:
        """Assert that the target holds each of the source's messages once, in order, with subject and payload."""
        state = (await self.peer.api(f"STREAM.INFO.{self.name}"))["state"]
        expected = await stored_messages(self.peer, self.name, int(state["messages"]))
        found = await self.stored()
        assert [record_of(message).sequence for message in found] == [message.sequence for message in expected]
        prefix, own = self.target.encode(), self.name.encode()
        assert [(message.subject, message.payload) for message in found] == [
            (prefix + message.subject[len(own) :], message.payload) for message in expected
        ]
        return found


async def _state_of(peer: RawPeer, stream: str) -> dict[str, Any]:
    """A stream's state; asked again while a cluster changes leaders, which loses requests."""
    while True:
        try:
            reply = await peer.client.request(f"$JS.API.STREAM.INFO.{stream}", b"", timeout=1)
        except nats.errors.Error:
            await asyncio.sleep(0.01)
            continue
        answer: dict[str, Any] = json.loads(reply.data)
        if "state" in answer:
            state: dict[str, Any] = answer["state"]
            return state
