"""What a stream holds, read back raw."""

from __future__ import annotations

from typing import Any

from bridge.republish_loop import AckReply
from tests.live.raw_messages import RawPeer
from transforms.republish import StoredMessage


async def stored_messages(peer: RawPeer, stream: str, messages: int, **config: Any) -> list[StoredMessage]:
    """The first so many messages of a stream, as soon as it holds them."""
    inbox = peer.client.new_inbox()
    arrived = await peer.collect(inbox)
    answer = await peer.api(
        f"CONSUMER.CREATE.{stream}",
        {"stream_name": stream, "config": {"deliver_subject": inbox, "ack_policy": "none", **config}},
    )
    assert "error" not in answer, answer
    found = (await arrived.count(messages))[:messages]
    return [
        StoredMessage(subject, block, payload, ack.stream_sequence, ack.time_ns)
        for subject, ack, block, payload in (
            (subject, AckReply.parse(reply), block, payload) for subject, reply, block, payload in found
        )
    ]
