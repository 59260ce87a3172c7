"""A server that has lost its cluster keeps its clients: the leases leave it, and the rule is led again."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from nats_bridge.client.connection import Connection
from nats_bridge.rules.leadership.lease_store import bucket_config
from nats_bridge.rules.leadership.leases import Leases
from nats_conformance.native_servers import NativeCluster, NativeServer
from nats_conformance.native_servers.native_server import free_port
from tests.live.leadership.leases import write_lease
from tests.live.observing.test_health import get
from tests.live.raw_messages import OpenPeer
from tests.live.sidecar_process import Scene
from tests.live.sidecars import running, settings_for
from tests.live.tiers import with_all
from tests.live.until import until

_CLUSTER = re.compile(r"cluster \{.*\}")


async def _isolate(node: NativeServer) -> None:
    """Restart a server that neither finds the others nor is found by them; it listens to clients as before."""
    alone = f'cluster {{ name: "alone", listen: "127.0.0.1:{free_port()}", routes: ["nats://127.0.0.1:1"] }}'
    await asyncio.to_thread(node.stop)
    node.config = _CLUSTER.sub(alone, node.config)
    await asyncio.to_thread(node.start)


@pytest.mark.parametrize("version", ["2.15.3", *with_all("2.9.10", "2.10.27")])
async def test_the_leases_leave_a_server_that_has_lost_its_cluster(version: str, raw_peer: OpenPeer) -> None:
    async with NativeCluster(version, advertise=False) as cluster:
        isolated, *others = cluster.nodes
        peer = await raw_peer(others[0].url)
        here = await Scene.make(peer, "S", num_replicas=3)
        await peer.create_stream(**bucket_config("B", 3))
        await write_lease(peer, "B", holder="before", released=True)
        connections: dict[str, Any] = {
            "default": {"servers": [others[0].url]},
            "leases": {"servers": [isolated.url, others[1].url]},
        }
        leadership = {"connection": "leases", "bucket": "B", "ttl": 1}
        settings = settings_for(
            "", here.rule(), connections=connections, leadership=leadership, http={"listen": "127.0.0.1:0"}
        )
        async with running(settings) as sidecar:
            leases = sidecar._leadership
            assert isinstance(leases, Leases)
            connection: Connection = leases._connection

            async def is_ready() -> bool:
                return (await get(sidecar, "/readyz"))[0] == 200

            await until(is_ready)
            await _isolate(isolated)
            await until(lambda: connection.client.is_connected)
            if connection.server not in isolated.url:
                await connection.leave("the test")
            await until(lambda: connection.client.is_connected and connection.server in isolated.url)
            await until(lambda: connection.server not in isolated.url)
            await until(is_ready)
            await here.bridged.until_sequence(await here.end())
