"""What a capture needs of the user of its connection."""

from __future__ import annotations

from nats_bridge.bridge.replication.rules import api_subject, permissions_of, write
from nats_bridge.bridge.settings import Connection
from nats_bridge.pipeline.source.permissions import reads

__all__ = ["capture_permissions"]

_SERVERS = "servers"


def capture_permissions(connection: Connection, stream: str | None) -> str:
    """A block of permissions, as nats-server reads it.

    Args:
        connection: what it reads from.
        stream: the captured stream; None for all.
    """
    needs = list(reads(_SERVERS, stream or "*"))
    needs.append(
        write(
            _SERVERS,
            api_subject("CONSUMER.LIST", stream or "*"),
            "saves the durable consumers",
            without="they are not saved",
        )
    )
    if stream is None:
        needs.append(write(_SERVERS, api_subject("STREAM.LIST"), "finds the streams"))
    return permissions_of({_SERVERS: connection}, needs)
