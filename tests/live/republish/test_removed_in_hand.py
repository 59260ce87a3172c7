"""`kd/messages/removed-in-hand`: removing a message in flight acknowledges those before it, for the server."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecar_process import Scene
from tests.live.sidecars import running, settings_for
from tests.live.until import until


async def test_for_every_server_a_removal_acknowledges_what_was_sent_before(
    twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """With the policy `all`, which at_least_once uses; when servers repair this, this test fails."""
    peer = await raw_peer(await servers.url(twin_version))
    name = unique_name("inhand")
    await peer.create_stream(name=name, subjects=[f"{name}.>"])
    for _ in range(10):
        await peer.store(f"{name}.x".encode())
    await peer.collect(f"to{name}")
    config = {"durable_name": "D", "ack_policy": "all", "deliver_subject": f"to{name}", "ack_wait": 3600 * 10**9}
    await peer.api(f"CONSUMER.DURABLE.CREATE.{name}.D", {"stream_name": name, "config": config})

    async def stands_at(member: str) -> int:
        return int((await peer.api(f"CONSUMER.INFO.{name}.D"))[member]["stream_seq"])

    async def all_sent() -> bool:
        return await stands_at("delivered") == 10

    async def moved() -> bool:
        return await stands_at("ack_floor") > 0

    await until(all_sent)
    assert await stands_at("ack_floor") == 0
    await peer.api(f"STREAM.MSG.DELETE.{name}", {"seq": 8})
    await until(moved)
    assert await stands_at("ack_floor") == 8


@pytest.mark.parametrize(
    ("kept", "delivery", "warned"),
    [(1, "at_least_once", True), (-1, "at_least_once", False), (1, "at_most_once", False)],
)
async def test_a_rule_says_at_its_start_that_it_can_meet_this(
    kept: int, delivery: str, warned: bool, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("pushed"), max_msgs_per_subject=kept)
    with capture_logs() as log:
        async with running(settings_for(url, here.rule(delivery=delivery))):
            pass
    assert [line["event"] for line in log].count("rule.position_can_jump") == warned
