"""A stream's state, from a leader that has caught up with its Raft log."""

from nats_bridge.client.jetstream_api import JetStreamApi, Json
from nats_bridge.client.stream_identity import KnownStream
from nats_bridge.client.waiting import NO_ANSWER

_LOOKS = 40


async def settled_stream(api: JetStreamApi, stream: str, handled: int, known: KnownStream | None = None) -> Json:
    """Request `STREAM.INFO` until the stream's end is at or after the last message read from it.

    A new leader can answer before it has caught up with its Raft log. A rule that trusted it would move back and read
    handled messages again. The stream has lost messages only if its end stays the same for some seconds. The first
    answer of a stream with one replica is always right.

    Args:
        handled: the highest sequence that was read from it.
        known: the stream of that name that was read; None if unknown.
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
