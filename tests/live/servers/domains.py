"""A hub with a JetStream domain, and a leaf node with another one, linked."""

from __future__ import annotations

from typing import Any

from nats_bridge.settings import Settings
from nats_conformance.native_servers import NativeServer
from nats_conformance.native_servers.native_server import HOST, LEAF_LISTENER
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Servers
from tests.live.sidecars import settings_for
from tests.live.until import until


class Domains:
    """A hub and its leaf, linked, with a peer at each."""

    def __init__(self, hub: NativeServer, leaf: NativeServer, at_hub: RawPeer, at_leaf: RawPeer) -> None:
        self.hub, self.leaf = hub, leaf
        self.at_hub, self.at_leaf = at_hub, at_leaf

    def settings(self, *rules: dict[str, Any], way: dict[str, str] | None = None, **more: Any) -> Settings:
        """Rules of a sidecar with two connections, both to the hub."""
        named = {
            "default": {"servers": [self.hub.url]},
            "leaf": {"servers": [self.hub.url]} | (way or {"domain": "leaf"}),
        }
        return settings_for("", *rules, connections=named, **more)


async def linked_domains(version: str, native_server: Servers, raw_peer: OpenPeer) -> Domains:
    """Both servers, when the hub reaches the leaf's domain."""
    hub = native_server(version, config=f"leafnodes {{{LEAF_LISTENER}}}\njetstream {{domain: hub}}").start()
    remote = f'leafnodes {{remotes: [{{url: "nats-leaf://{HOST}:{hub.leaf_port}"}}]}}\njetstream {{domain: leaf}}'
    leaf = native_server(version, config=remote).start()
    at_hub, at_leaf = await raw_peer(hub.url), await raw_peer(leaf.url)

    async def linked() -> bool:
        return await at_hub.request_raw(b"$JS.leaf.API.INFO") is not None

    await until(linked)
    return Domains(hub, leaf, at_hub, at_leaf)
