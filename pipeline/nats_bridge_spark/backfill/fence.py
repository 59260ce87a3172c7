"""Keeps other processes from running a rule while a job does its work.

A copying sidecar has a consumer with a certain description, and a backfill looks for it. The backfill also creates such
a consumer, without receiving from it, so another backfill finds it. If the configuration has replicas, the rule's lease
is taken as well: a sidecar that starts is then on standby, and begins when the job has ended.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from nats_bridge.client.connection import Connection
from nats_bridge.client.tasks import end_tasks
from nats_bridge.client.waiting import LEADER_AWAY
from nats_bridge.consuming.consumer_plan import consumer_owner
from nats_bridge.consuming.rule_consumer import TAKEOVER
from nats_bridge.kinds.copying.handoff.to_server import copying_consumer
from nats_bridge.rules.leadership.leases import open_leases
from nats_bridge.settings import Rule, Settings
from nats_bridge_spark.errors import PipelineError

_TIMES = 3  # times a lease's time to wait for it


@asynccontextmanager
async def fenced(settings: Settings, rule: Rule, sources: Sequence[tuple[Connection, str]]) -> AsyncIterator[None]:
    """Keep other processes from running the rule, as far as possible from outside.

    Raises:
        PipelineError: another replica has the lease.
        BridgeError: a server refuses.
    """
    async with AsyncExitStack() as held:
        if settings.leadership is not None:
            leases = await open_leases(settings, settings.leadership)
            held.push_async_callback(leases.close)
            leading = asyncio.create_task(leases.lead(rule))
            held.push_async_callback(end_tasks, leading)
            won, _ = await asyncio.wait({leading}, timeout=_TIMES * settings.leadership.ttl)
            if not won:
                holder = leases.holder(rule.name) or "another process"
                raise PipelineError(
                    f"rule '{rule.name}': replica '{holder}' holds its lease (bucket '{settings.leadership.bucket}'):"
                    " stop the sidecars, and start them again afterwards"
                )
            held.push_async_callback(leading.result().end)
        for connection, stream in sources:
            await held.enter_async_context(_announced(connection, stream, consumer_owner(settings.name, rule.name)))
        yield


@asynccontextmanager
async def _announced(connection: Connection, stream: str, owner: str) -> AsyncIterator[None]:
    """Keep a consumer whose description announces the job. The server removes it soon after its subscriber ends."""
    inbox = connection.client.new_inbox()
    subscription = await connection.client.subscribe_batches(inbox, lambda *_: None, lambda *_: None)
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
    made = await connection.api.create_ephemeral(stream, config, "fence")
    try:
        yield
    finally:
        if connection.client.is_connected:
            await connection.api.forget_ephemeral(stream, str(made["name"]))
        await subscription.release()


async def refuse_running(connection: Connection, stream: str, owner: str, rule: str) -> None:
    """Refuse a rule one of whose consumers has a subscriber, with a `PipelineError`."""
    deadline = asyncio.get_running_loop().time() + TAKEOVER
    while (consumer := await copying_consumer(connection, stream, owner)) is not None:
        if asyncio.get_running_loop().time() >= deadline:
            raise PipelineError(
                f"rule '{rule}': it is running: consumer '{consumer}' of stream '{stream}' is read at this moment."
                " Stop the sidecar (or the other backfill), and start it again afterwards"
            )
        await LEADER_AWAY.pause()  # of a process that was killed, which the server notices in a moment
