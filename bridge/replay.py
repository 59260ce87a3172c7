"""Reading a range of a stream again: for gaps, for seeding last sequences, for the tail at shutdown.

Each replay is an ephemeral consumer of its own, gone afterwards; it moves nobody's position.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from bridge.errors import ApiError
from bridge.jetstream_api import JetStreamApi, Json
from bridge.republish_loop import AckReply
from bridge.wire import Delivered
from transforms import header_block

__all__ = ["Replay", "ephemeral_config"]

_HEARTBEAT_NS = 2_000_000_000
_SILENCE = 10.0  # seconds without a message or heartbeat, after which the consumer is taken for lost


def ephemeral_config(inbox: str, *, filter_subject: str | None, headers_only: bool, direct: bool) -> Json:
    """The configuration that all our ephemeral consumers share: push, no acks, flow control, heartbeats."""
    config: dict[str, Any] = {
        "deliver_subject": inbox,
        "ack_policy": "none",
        "max_deliver": 1,
        "replay_policy": "instant",
        "flow_control": True,
        "idle_heartbeat": _HEARTBEAT_NS,
        "inactive_threshold": 5_000_000_000,
        "mem_storage": True,
        "num_replicas": 1,
    }
    if filter_subject:
        config["filter_subject"] = filter_subject
    if headers_only:
        config["headers_only"] = True
    if direct:
        config["direct"] = True
    return config


@dataclass(frozen=True, slots=True)
class Replay:
    """How to read a stream.

    Attributes:
        api: the connection's API.
        stream: the stream's name.
        filter_subject: only these subjects; None for all.
        headers_only: leave payloads on the server.
        direct: use a consumer that work-queue and interest streams do not count as one of theirs.
    """

    api: JetStreamApi
    stream: str
    filter_subject: str | None = None
    headers_only: bool = False
    direct: bool = False

    async def between(self, first: int, last: int) -> AsyncIterator[list[Delivered]]:
        """Batches of the messages with first <= sequence <= last that still exist, in order."""
        if first > last:
            return
        policy = {"deliver_policy": "by_start_sequence", "opt_start_seq": first}
        async for batch in self._read(policy):
            if AckReply.parse(batch[-1][1]).stream_sequence <= last:
                yield batch
                continue
            kept = [message for message in batch if AckReply.parse(message[1]).stream_sequence <= last]
            if kept:
                yield kept
            return

    async def last_per_subject(self) -> AsyncIterator[list[Delivered]]:
        """Batches of the last message of each subject, then of what was stored meanwhile, up to the stream's end.

        After the last batch the map built from it is exact for the stream as it was at that batch's last message:
        everything stored before was either delivered or no longer its subject's last.
        """
        policy = {"deliver_policy": "last_per_subject", "filter_subject": self.filter_subject or ">"}
        async for batch in self._read(policy):
            yield batch

    async def _read(self, policy: Json) -> AsyncIterator[list[Delivered]]:
        client = self.api.client
        arrived: asyncio.Queue[list[Delivered] | tuple[bytes, bytes]] = asyncio.Queue()
        inbox = client.new_inbox()
        subscription = await client.subscribe_batches(
            inbox, arrived.put_nowait, lambda reply, block: arrived.put_nowait((reply, block))
        )
        config = ephemeral_config(
            inbox, filter_subject=self.filter_subject, headers_only=self.headers_only, direct=self.direct
        )
        name = ""
        try:
            created = await self.api.create_ephemeral(self.stream, config | policy)
            name = created["name"]
            if not created.get("num_pending") and arrived.empty():
                return
            seen = 0
            while True:
                item = await self._next(arrived)
                if isinstance(item, tuple):
                    reply, block = item
                    if reply:
                        client.write_raw(b"PUB %b 0\r\n\r\n" % reply)
                    delivered = header_block.read(block, b"Nats-Last-Consumer")
                    if delivered is not None and int(delivered) == seen:
                        return
                    continue
                end = AckReply.parse(item[-1][1])
                seen = end.consumer_sequence
                yield item
                if end.pending == 0:
                    return
        finally:
            await subscription.release()
            if name and not self.direct and client.is_connected:
                await self.api.delete_consumer(self.stream, name)

    async def _next(
        self, arrived: asyncio.Queue[list[Delivered] | tuple[bytes, bytes]]
    ) -> list[Delivered] | tuple[bytes, bytes]:
        try:
            return await asyncio.wait_for(arrived.get(), _SILENCE)
        except TimeoutError:
            raise ApiError(
                f"connection '{self.api.connection}': stream '{self.stream}': nothing arrives from a replay for"
                f" {_SILENCE:g} s: the server or its stream leader is away",
                http_code=408,
                err_code=0,
                description="replay silent",
                retriable=True,
            ) from None
