"""Keeping two from working on the same rule at the same time, for as long as a job runs, or is not finished.

A sidecar that copies has a consumer whose description says so, and that is looked for. A backfill makes one of the
same kind, from which it takes nothing, so that another backfill sees it, too. Where the configuration has replicas,
the rule's lease is taken as well: then a sidecar that starts meanwhile stands by, and begins when the job has ended.

Several tasks leave copies that do not show where to resume, until the job has ended; that is marked
on the server, and stays marked if the job ends otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from nats_bridge.bridge.client.connection import Link
from nats_bridge.bridge.client.tasks import end_tasks
from nats_bridge.bridge.consuming.rule_consumer import consumer_owner
from nats_bridge.bridge.kinds.copying.parallel_backfill import UnfinishedCopies
from nats_bridge.bridge.rules.leadership.leases import open_leases
from nats_bridge.bridge.settings import Rule, Settings
from nats_bridge.pipeline.errors import OptionError, PipelineError

__all__ = ["fenced", "mark_unfinished"]

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


async def mark_unfinished(unfinished: UnfinishedCopies, first: int, last: int, held_from: int) -> None:
    """Keep rules from believing the target's copies, until `UnfinishedCopies.end`.

    Args:
        unfinished: the mark.
        first: the origin's first sequence that will be copied.
        last: the last one.
        held_from: the first one that the origin still has.

    Raises:
        OptionError: another range has been begun, and this one would leave some of it out.
        ApiError: the server refuses, or cannot be asked.
    """
    begun = await unfinished.range()
    if begun is not None and (first > max(begun[0], held_from) or last < begun[1]):
        raise OptionError(
            f"--parallel: an earlier job has begun to copy {begun[0]} to {begun[1]} of '{unfinished.origin}' and has"
            f" not come to its end; {first} to {last} would leave some of these out: run it with that range or more"
        )
    await unfinished.begin(first, last)


@asynccontextmanager
async def _announced(link: Link, stream: str, owner: str) -> AsyncIterator[None]:
    """A consumer whose name says what is running, and that is gone a moment after its subscriber is."""
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
