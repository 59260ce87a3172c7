"""Detects a running sidecar by its consumers on the sources' servers: each names its owner."""

from __future__ import annotations

from nats_bridge.bridge.client.connection import Connection

__all__ = ["copying_consumer"]


async def copying_consumer(connection: Connection, source: str, owner: str) -> str | None:
    """The name of a consumer by which a rule copies at this moment; None without one.

    Args:
        connection: the connection that holds the source.
        source: the source's name.
        owner: how the descriptions of the rule's consumers begin.

    Raises:
        ApiError: the server cannot be asked.
    """
    for info in await connection.api.consumers(source):
        if info.get("push_bound") and str(info["config"].get("description", "")).startswith(owner):
            return str(info["name"])
    return None
