"""Whether a sidecar, or another backfill, works on a rule at this moment."""

from __future__ import annotations

import asyncio

from nats_bridge.bridge.client.connection import Link
from nats_bridge.bridge.consuming.rule_consumer import TAKEOVER
from nats_bridge.bridge.handoff.running import copying_consumer
from nats_bridge.pipeline.errors import PipelineError

__all__ = ["refuse_at_work"]

_POLL = 0.1  # seconds between two looks at a consumer


async def refuse_at_work(link: Link, stream: str, owner: str, rule: str) -> None:
    """Look for a consumer of the rule that somebody listens to.

    Args:
        link: the connection that holds the stream.
        stream: what the rule reads.
        owner: how the descriptions of the rule's consumers begin.
        rule: its name.

    Raises:
        PipelineError: there is one.
        ApiError: the server cannot be asked.
    """
    consumer = await copying_consumer(link, stream, owner)
    deadline = asyncio.get_running_loop().time() + TAKEOVER
    while consumer is not None and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(_POLL)  # of a process that was killed, which the server notices in a moment
        consumer = await copying_consumer(link, stream, owner)
    if consumer is not None:
        raise PipelineError(
            f"rule '{rule}': it is running: consumer '{consumer}' of stream '{stream}' is read at this moment."
            " Stop the sidecar (or the other backfill), and start it again afterwards"
        )
