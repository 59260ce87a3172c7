"""Whether a sidecar still copies, as far as its origins' servers can tell: its consumers say whose they are."""

from __future__ import annotations

from nats_bridge.bridge.client.connection import Link

__all__ = ["copying_consumer"]


async def copying_consumer(link: Link, origin: str, owner: str) -> str | None:
    """The name of a consumer by which a rule copies at this moment; None without one.

    Args:
        link: the connection that holds the origin.
        origin: the origin's name.
        owner: how the descriptions of the rule's consumers begin.

    Raises:
        ApiError: the server cannot be asked.
    """
    for info in await link.api.consumers(origin):
        if info.get("push_bound") and str(info["config"].get("description", "")).startswith(owner):
            return str(info["name"])
    return None
