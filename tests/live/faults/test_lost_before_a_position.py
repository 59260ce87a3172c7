"""A server keeps a durable consumer's position, and loses messages before it: the next process of the rule finds out.

A position has no time, but the lease and the last clean stop keep one. The stream has stored other messages under the
lost sequences before the process starts, and is longer than before.
"""

from __future__ import annotations

from typing import Any

import pytest
import structlog

from nats_transforms.timestamp import nanoseconds_of
from tests.live.faults.power_cut import LostEnd
from tests.live.leadership.leases import LONG, free, lease, write_lease
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Servers
from tests.live.sidecar_process import Scene
from tests.live.sidecars import running, settings_for
from tests.live.tiers import by_turns

VERSIONS = ["2.10.27", "2.15.3", pytest.param("2.9.10", marks=pytest.mark.exhaustive)]
DURABLE = "nats-bridge_rule"


async def _last(peer: RawPeer) -> int:
    return int((await peer.api("STREAM.INFO.S"))["state"]["last_seq"])


async def _older_position(peer: RawPeer) -> None:
    """Write the lease of a process that was killed: its position is older than the consumer's."""
    message = (await peer.api("STREAM.MSG.GET.S", {"seq": 40}))["message"]
    position = {"stream": "S", "sequence": 40, "time_ns": nanoseconds_of(message["time"])}
    await write_lease(peer, "S", **((await lease(peer, "S")) or {}) | {"position": position})


async def _no_position(peer: RawPeer) -> None:
    """Leave the consumer of a process without a lease that was killed."""
    config = (await peer.api(f"CONSUMER.INFO.S.{DURABLE}"))["config"]
    config["description"] = config["description"].partition(" (done")[0]
    body = {"stream_name": "S", "config": config}
    assert "error" not in await peer.api(f"CONSUMER.DURABLE.CREATE.S.{DURABLE}", body)


@by_turns(
    "version, delivery, with_lease, killed, found",
    VERSIONS,
    [
        ("at_least_once", True, False, "rule.position_restored"),
        ("at_least_once", True, True, "rule.position_restored"),
        ("at_least_once", False, False, "rule.position_restored"),
        ("at_least_once", False, True, "rule.position_unproven"),
        ("at_most_once", False, False, "rule.position_restored"),
    ],
)
async def test_new_messages_before_the_position(
    version: str,
    delivery: str,
    with_lease: bool,
    killed: bool,
    found: str,
    native_server: Servers,
    enduring_peer: OpenPeer,
) -> None:
    server = native_server(version).start()
    peer = await enduring_peer(server.url)
    here = await Scene.make(peer, "S")
    await free(peer, "S")
    more: dict[str, Any] = {"leadership": {"bucket": "S", "ttl": LONG}} if with_lease else {}
    settings = settings_for(server.url, here.rule(delivery=delivery, start="first"), dialect="native", **more)
    end = LostEnd(server, peer, "S")

    async def run_for(messages: int) -> None:
        async with running(settings):
            await here.load.burst(messages)
            await here.bridged.until_sequence(await here.end())

    await run_for(50)
    synced = await _last(peer)
    await end.sync()
    await run_for(50)
    if killed:
        await (_older_position if with_lease else _no_position)(peer)
    await end.lose(here.load.burst(70))
    seen, last = len(here.bridged.messages), await _last(peer)
    with structlog.testing.capture_logs() as log:
        await run_for(1)
    after = {(True, True): 40, (False, True): 102}.get((with_lease, killed), synced)
    assert [(line["event"], line["after"]) for line in log if line["event"].startswith("rule.position")] == [
        (found, after)
    ]
    assert here.bridged.sequences[seen:] == list(range(after + 1, last + 3))


@pytest.mark.parametrize("version", ["2.9.10", "2.15.3"])
async def test_new_messages_before_deliveries_that_were_not_acknowledged(
    version: str, native_server: Servers, enduring_peer: OpenPeer, raw_peer: OpenPeer
) -> None:
    """The position is in the stream, but a killed process has received messages that are lost. 2.9 says so."""
    server = native_server(version).start()
    peer = await enduring_peer(server.url)
    here = await Scene.make(peer, "S")
    settings = settings_for(server.url, here.rule(delivery="at_least_once", start="first"), dialect="native")
    end = LostEnd(server, peer, "S")
    async with running(settings):
        await here.load.burst(50)
        await here.bridged.until_sequence(50)
    await end.sync()
    killed = await raw_peer(server.url)
    received = await killed.collect("killed")
    config = (await here.durable())["config"] | {"deliver_subject": "killed"}
    assert "error" not in await peer.api(f"CONSUMER.DURABLE.CREATE.S.{DURABLE}", {"stream_name": "S", "config": config})
    await here.load.burst(10)
    await received.count(10)
    await killed.close()
    await end.lose(here.load.burst(3))
    async with running(settings):
        await here.load.burst(1)
        await here.bridged.until_sequence(54)
    assert here.bridged.sequences == list(range(1, 55))
