"""What a stream holds, read back raw."""

from __future__ import annotations

from typing import Any

from nats_bridge.consuming.ack_reply import AckReply
from nats_transforms.republish import StoredMessage
from tests.live.raw_messages import Collected, RawPeer


async def stored_messages(peer: RawPeer, stream: str, messages: int, **config: Any) -> list[StoredMessage]:
    """The first so many messages of a stream, as soon as it holds them."""
    inbox = peer.client.new_inbox()
    arrived = Collected()
    subscription = await peer.client.subscribe_batches(inbox, arrived.add, lambda *_: None)
    await peer.flushed()
    answer = await peer.api(
        f"CONSUMER.CREATE.{stream}",
        {"stream_name": stream, "config": {"deliver_subject": inbox, "ack_policy": "none", **config}},
    )
    assert "error" not in answer, answer
    found = (await arrived.count(messages))[:messages]
    # Or everything that the stream stores from now on would be delivered here as well.
    await subscription.unsubscribe()
    await subscription.release()
    return [
        StoredMessage(subject, block, payload, ack.stream_sequence, ack.time_ns)
        for subject, ack, block, payload in (
            (subject, AckReply.parse(reply), block, payload) for subject, reply, block, payload in found
        )
    ]
