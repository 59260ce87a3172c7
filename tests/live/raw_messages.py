"""Publishing and receiving raw messages in live tests: header blocks as bytes, nothing parsed or normalised."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Self, TypeAlias

import nats.errors

from nats_bridge.client.wire import Delivered, WireClient
from tests.live.until import LIMIT, until

NO_PEERS = 10005
"""The error by which the leader of a cluster that was just started says that it does not know its members' room yet."""

NO_STORE = 10049
"""The error by which 2.10.27 says that it could not open a stream's store. On a busy machine it answers a request to
create a stream in this way if it is still removing the store of one that was deleted just before, under that name."""

PASSING = {NO_PEERS, NO_STORE}

_ANSWER = 15.0  # seconds after which an answer counts as lost


class RawPeer:
    """A connection that publishes raw header blocks and collects what subscriptions receive, byte for byte."""

    def __init__(self, client: WireClient) -> None:
        self.client = client
        self._inbox = client.new_inbox()
        self._requests = 0
        self._waiting: dict[bytes, asyncio.Future[bytes]] = {}

    @classmethod
    async def connect(cls, url: str) -> Self:
        client = WireClient()
        peer = cls(client)
        await client.connect(url, allow_reconnect=False, closed_cb=peer._ended, connect_timeout=int(LIMIT))
        await peer.listen()
        return peer

    async def listen(self) -> None:
        """Subscribe to the answers to `store` and `request_raw`; `connect` has done it."""
        await self.client.subscribe_batches(f"{self._inbox}.*", self._answered, lambda *_: None)
        await self.flushed()  # or the first message overtakes the subscription that its answer needs

    async def flushed(self) -> None:
        """Wait until the server has read all that was written; streams store it a little later."""
        async with asyncio.timeout(LIMIT):
            await self.client.flushed()

    async def close(self) -> None:
        # Also where the server was faster: then a test that closes it may end before that.
        await self.client.close()

    async def api(self, subject: str, body: dict[str, Any] | None = None, *, within: float = LIMIT) -> dict[str, Any]:
        data = b"" if body is None else json.dumps(body).encode()
        reply = await self.client.request("$JS.API." + subject, data, timeout=within)
        answer: dict[str, Any] = json.loads(reply.data)
        return answer

    async def create_stream(self, **config: Any) -> dict[str, Any]:
        """Create a stream, again if the answer is lost: a 2.9 cluster loses it in a change of leaders."""
        async with asyncio.timeout(LIMIT):
            while True:
                try:
                    answer = await self.api(f"STREAM.CREATE.{config['name']}", config, within=_ANSWER)
                except nats.errors.TimeoutError:
                    continue
                if answer.get("error", {}).get("err_code") not in PASSING:
                    break
                await asyncio.sleep(0.02)
        assert "error" not in answer, answer
        return answer

    async def delete_messages(self, stream: str, sequences: Iterable[int]) -> None:
        """Delete messages that the stream holds."""
        for sequence in sequences:
            assert (await self.api(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence}))["success"]

    async def recreate_stream(self, name: str) -> None:
        """Delete a stream, and create it as it was configured, with nothing in it."""
        config = (await self.api(f"STREAM.INFO.{name}"))["config"]
        assert (await self.api(f"STREAM.DELETE.{name}"))["success"]
        await self.create_stream(**config)

    async def store(self, subject: bytes, payload: bytes = b"", block: bytes = b"") -> dict[str, Any]:
        """Publish with a raw header block and wait for the stream's answer; again while it has no leader to answer."""
        async with asyncio.timeout(LIMIT):
            while True:
                if answer := await self.request_raw(subject, payload, block):
                    reply: dict[str, Any] = json.loads(answer)
                    return reply
                await asyncio.sleep(0.02)

    async def request_raw(self, subject: bytes, payload: bytes = b"", block: bytes = b"") -> bytes | None:
        """Publish with a raw header block and wait for an answer; None without responders."""
        self._requests += 1
        inbox = f"{self._inbox}.{self._requests}".encode()
        answer = self._waiting[inbox] = asyncio.get_running_loop().create_future()
        self.publish(subject, payload, block, inbox)
        async with asyncio.timeout(LIMIT):
            return await answer or None

    def _answered(self, batch: list[Delivered]) -> None:
        for subject, _, _, payload in batch:
            waiting = self._waiting.pop(subject, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(payload)

    async def _ended(self) -> None:
        # A request that waits for an answer learns at once that there will be none.
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ConnectionError("the connection ended before the stream's answer"))
        self._waiting.clear()

    def publish(self, subject: bytes, payload: bytes = b"", block: bytes = b"", reply: bytes = b"") -> None:
        """Publish with a raw header block, without waiting."""
        middle = b"%b " % reply if reply else b""
        if block:
            line = b"HPUB %b %b%d %d\r\n" % (subject, middle, len(block), len(block) + len(payload))
        else:
            line = b"PUB %b %b%d\r\n" % (subject, middle, len(payload))
        self.client.write_raw(line + block + payload + b"\r\n")

    async def collect(self, subject: str) -> Collected:
        """Subscribe and keep everything that arrives."""
        collected = Collected()
        await self.client.subscribe_batches(subject, collected.add, lambda *_: None)
        await self.flushed()
        return collected


class Collected:
    """Messages in order of arrival; `until` waits for a condition over them."""

    def __init__(self) -> None:
        self.messages: list[Delivered] = []
        self._arrived = asyncio.Event()

    def add(self, batch: list[Delivered]) -> None:
        self.messages.extend(batch)
        self._arrived.set()

    async def count(self, wanted: int) -> list[Delivered]:
        """Wait until at least `wanted` messages are here."""
        async with asyncio.timeout(LIMIT):
            while len(self.messages) < wanted:
                self._arrived.clear()
                await self._arrived.wait()
        return self.messages

    async def until_sequence(self, sequence: int) -> list[Delivered]:
        """Wait for the republished message with this `Nats-Sequence` (the last such line counts)."""
        line = b"\r\nNats-Sequence: %d\r\n" % sequence
        async with asyncio.timeout(LIMIT):
            while not any(line in message[2] for message in self.messages):
                self._arrived.clear()
                await self._arrived.wait()
        return self.messages


OpenPeer: TypeAlias = Callable[[str], Awaitable[RawPeer]]


async def connected(peer: RawPeer) -> None:
    """Wait until a peer's connection is back."""

    async def answers() -> bool:
        if not peer.client.is_connected:
            return False
        pong = peer.client.flushed()
        await asyncio.wait([pong], timeout=1)  # none comes where the loss of the connection has not been noticed yet
        return pong.done()

    await until(answers)
