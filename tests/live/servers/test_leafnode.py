"""Rules on a server that is a leaf: it names a cluster after itself, and its consumers have no leader."""

from __future__ import annotations

from nats_conformance.native_servers.native_server import HOST, LEAF_LISTENER
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Servers
from tests.live.sidecars import running, settings_for
from tests.live.until import until


async def test_a_rule_works_on_through_a_second_start_and_a_restart_of_the_leaf(
    twin_version: str, native_server: Servers, raw_peer: OpenPeer
) -> None:
    hub = native_server(twin_version, config=f"leafnodes {{{LEAF_LISTENER}}}\njetstream {{domain: hub}}").start()
    remote = f'leafnodes {{remotes: [{{url: "nats-leaf://{HOST}:{hub.leaf_port}"}}]}}\njetstream {{domain: leaf}}'
    leaf = native_server(twin_version, config=remote).start()
    peer = await raw_peer(leaf.url)
    await peer.create_stream(name="S", subjects=["s.>"])
    rule = {"name": "r", "stream": "S", "republish": {"src": "s.>", "dest": "d.>"}, "start": "first"}
    settings = settings_for(leaf.url, rule)
    await peer.store(b"s.1")
    async with running(settings) as sidecar:
        await until(lambda: sidecar.supervisors[0].counters().get("republished") == 1)
    await peer.store(b"s.2")
    async with running(settings) as sidecar:
        supervisor = sidecar.supervisors[0]
        await until(lambda: supervisor.counters().get("republished") == 1)
        leaf.stop()
        leaf.start()
        after = await raw_peer(leaf.url)
        seen = await after.collect("d.>")
        await after.store(b"s.3")
        await seen.count(1)
        await until(lambda: supervisor.ready)
