"""A stream's state, from a leader that has caught up with its Raft log."""

from __future__ import annotations

import asyncio

from nats_bridge.bridge.client.jetstream_api import JetStreamApi, Json

__all__ = ["settled_stream"]

_LOOKS = 40
_PAUSE = 0.25  # seconds between two looks


async def settled_stream(api: JetStreamApi, stream: str, handled: int, created: str = "") -> Json:
    """`STREAM.INFO`, asked until the stream ends no earlier than what was read from it.

    A leader that was just elected can answer before it has taken in all that it has; taken at its word, a rule would go
    back and read messages again that it has handled. Only when the end stays where it is, some seconds long, has the
    stream really lost it. A stream with one replica has no such moment: what it says counts at once.

    Args:
        api: the connection's API.
        stream: its name.
        handled: the highest sequence that was read from it.
        created: which stream of that name was read, as `STREAM.INFO` reports it; empty if unknown.

    Raises:
        ApiError: the server refuses, or does not answer.
    """
    info = await api.stream_info(stream)
    for _ in range(_LOOKS):
        alone = int(info["config"].get("num_replicas", 1)) == 1
        another = bool(created) and info["created"] != created
        if alone or another or int(info["state"]["last_seq"]) >= handled:
            break
        await asyncio.sleep(_PAUSE)
        info = await api.stream_info(stream)
    return info
