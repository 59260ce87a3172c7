"""Keeping two from working on the same rule at the same time, for as long as a job runs.

A sidecar that copies has a consumer whose description says so, and that is looked for. A backfill makes one of the
same kind, from which it takes nothing, so that another backfill sees it, too. Where the configuration has replicas,
the rule's lease is taken as well: then a sidecar that starts meanwhile stands by, and begins when the job has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from bridge.cancelling import end_tasks
from bridge.connection import Link
from bridge.leadership.leases import open_leases
from bridge.rule_consumer import consumer_owner
from bridge.settings import Rule, Settings
from pipeline.errors import PipelineError

__all__ = ["fenced"]

_TIMES = 3  # times a lease's time to wait for it


@asynccontextmanager
async def fenced(settings: Settings, rule: Rule, origins: Sequence[tuple[Link, str]]) -> AsyncIterator[None]:
    """Hold the rule, as far as that can be done from outside.

    Args:
        settings: the configuration.
        rule: one of its rules.
        origins: the streams that are read, each with the connection that holds it.

    Raises:
        PipelineError: another replica has the lease.
        BridgeError: a server refuses.
    """
    async with AsyncExitStack() as held:
        if settings.leadership is not None:
            leases = await open_leases(settings, settings.leadership)
            held.push_async_callback(leases.close)
            leading = asyncio.create_task(leases.lead(rule))
            try:
                await asyncio.wait({leading}, timeout=_TIMES * settings.leadership.ttl)
                holder = leases.holder(rule.name) or "somebody"
            finally:
                if not leading.done():
                    await end_tasks(leading)
            if leading.cancelled():
                raise PipelineError(
                    f"rule '{rule.name}': replica '{holder}' holds its lease (bucket '{settings.leadership.bucket}'):"
                    " stop the sidecars, and start them again afterwards"
                )
            term = leading.result()
            held.push_async_callback(term.end)
        for link, stream in origins:
            await held.enter_async_context(_announced(link, stream, consumer_owner(settings.name, rule.name)))
        yield


@asynccontextmanager
async def _announced(link: Link, stream: str, owner: str) -> AsyncIterator[None]:
    """A consumer that says what is going on, and is gone a moment after whoever listens is."""
    inbox = link.client.new_inbox()
    subscription = await link.client.subscribe_batches(inbox, lambda *_: None, lambda *_: None)
    config: dict[str, Any] = {
        "description": f"{owner} backfill",
        "deliver_subject": inbox,
        "deliver_policy": "new",
        # Nothing is acknowledged: it is sent one message an hour at most.
        "ack_policy": "explicit",
        "max_ack_pending": 1,
        "ack_wait": 3600 * 10**9,
        "headers_only": True,
        "replay_policy": "instant",
        "inactive_threshold": 1_000_000_000,
        "mem_storage": True,
        "num_replicas": 1,
    }
    made = await link.api.create_ephemeral(stream, config)
    try:
        yield
    finally:
        if link.client.is_connected:
            await link.api.forget_ephemeral(stream, str(made["name"]))
        await subscription.release()
