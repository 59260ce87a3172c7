"""What a stream holds, read back raw."""

from __future__ import annotations

import asyncio
from typing import Any

from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.ack_reply import AckReply
from nats_transforms import header_block
from nats_transforms.republish import StoredMessage
from tests.live.raw_messages import Collected, RawPeer
from tests.live.until import LIMIT


async def stored_messages(peer: RawPeer, stream: str, messages: int | None, **config: Any) -> list[StoredMessage]:
    """The first so many messages of a stream, as soon as it holds them; None for those that it holds now."""
    inbox = peer.client.new_inbox()
    arrived, everything = Collected(), asyncio.Event()

    def add(batch: list[Delivered]) -> None:
        arrived.add(batch)
        if AckReply.parse(batch[-1][1]).pending == 0:
            everything.set()

    def beat(_: bytes, block: bytes) -> None:
        # Messages that were there when the consumer was created may have expired.
        if header_block.read(block, b"Nats-Last-Consumer") == b"%d" % len(arrived.messages):
            everything.set()

    subscription = await peer.client.subscribe_batches(inbox, add, beat)
    await peer.flushed()
    beats = {"idle_heartbeat": 100_000_000} if messages is None else {}
    answer = await peer.api(
        f"CONSUMER.CREATE.{stream}",
        {"stream_name": stream, "config": {"deliver_subject": inbox, "ack_policy": "none", **beats, **config}},
    )
    assert "error" not in answer, answer
    if messages is None:
        async with asyncio.timeout(LIMIT):
            await everything.wait()
    else:
        await arrived.count(messages)
    found = arrived.messages[:messages]
    # Or everything that the stream stores from now on would be delivered here as well.
    await subscription.unsubscribe()
    await subscription.release()
    return [
        StoredMessage(subject, block, payload, ack.stream_sequence, ack.time_ns)
        for subject, ack, block, payload in (
            (subject, AckReply.parse(reply), block, payload) for subject, reply, block, payload in found
        )
    ]
