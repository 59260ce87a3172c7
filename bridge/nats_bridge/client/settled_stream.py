"""A stream's state, from a leader that has caught up with its Raft log."""

from __future__ import annotations

from nats_bridge.client.jetstream_api import JetStreamApi, Json
from nats_bridge.client.stream_identity import KnownStream
from nats_bridge.client.waiting import NO_ANSWER

_LOOKS = 40


async def settled_stream(api: JetStreamApi, stream: str, handled: int, known: KnownStream | None = None) -> Json:
    """Request `STREAM.INFO` until the stream's end is not before what was read from it.

    A new leader can answer before it has caught up with its Raft log; a rule that trusted it would move back and read
    handled messages again. Only if the end is the same for some seconds has the stream really lost messages. A stream
    with one replica has no such moment: its first answer counts.

    Args:
        api: the connection's API.
        stream: its name.
        handled: the highest sequence that was read from it.
        known: which stream of that name was read; None if unknown.

    Raises:
        ApiError: the server refuses, or does not answer.
    """
    info = await api.stream_info(stream)
    for _ in range(_LOOKS):
        alone = int(info["config"].get("num_replicas", 1)) == 1
        if alone or int(info["state"]["last_seq"]) >= handled:
            break
        if known is not None and await known.verdict(api, info) == "recreated":
            break
        await NO_ANSWER.pause()
        info = await api.stream_info(stream)
    return info
