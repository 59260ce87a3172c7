"""Faults that administrators, disks and servers cause, as public reports describe them."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import Sequence
from typing import Any

from nats_conformance.native_servers import NativeServer
from tests.chaos.faults import Fault, drawn
from tests.chaos.peers import Peer
from tests.chaos.surroundings import PATIENCE, Surroundings, without_inbox

_NOTHING = "orders.none.>"


class Incidents:
    """Carries out such faults.

    Args:
        surroundings: the servers.
        peer: a connection to them.
    """

    def __init__(self, surroundings: Surroundings, peer: Peer) -> None:
        self._surroundings = surroundings
        self._peer = peer

    async def change_creation_times(self) -> str:
        """Restart, update every stream with its configuration, restart: before 2.14, another creation time.

        Reports: nats-server#8470, #8449.
        """
        await self._restart(self._surroundings.nodes)
        for name, config in self._surroundings.streams.items():
            await self._peer.try_api(f"STREAM.UPDATE.{name}", self._surroundings.stream_config(name, config))
        await self._restart(self._surroundings.nodes)
        return f"{len(self._surroundings.streams)} streams"

    async def take_offline(self, fault: Fault) -> str:
        """Leave a stream one replica, and stop its server: `STREAM.INFO` answers 10118 to everybody."""
        stream = drawn(list(self._surroundings.streams), fault.draw)
        config = self._surroundings.stream_config(stream, self._surroundings.streams[stream])
        await self._peer.try_api(f"STREAM.UPDATE.{stream}", {**config, "num_replicas": 1})
        holder = await self._only_holder(stream)
        if holder is not None:
            await asyncio.to_thread(holder.stop)
            await asyncio.sleep(fault.hold)
            await self._surroundings.raise_up(holder)
        await self._surroundings.make_whole(self._peer, stream)
        return f"{stream} on {holder.name} for {fault.hold} s" if holder is not None else f"{stream} has no leader"

    async def fill_disk(self, fault: Fault) -> str:
        """Let a server's writes fail as on a full disk, and restart it: 2.15.3 takes nothing before that."""
        nodes = self._surroundings.nodes
        node = drawn(nodes, fault.draw)
        room = 4096 + int(fault.draw * len(nodes) % 1 * 1_000_000)  # bytes; of each file
        resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
        await asyncio.sleep(fault.hold)
        resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await self._restart([node])
        return f"{node.name}, files of {room} bytes, for {fault.hold} s"

    async def refuse_inbox(self, fault: Fault) -> str:
        """Restart a server with permissions that forbid the sidecars their inboxes, and give them back."""
        node = drawn(self._surroundings.nodes, fault.draw)
        before = node.config
        node.config = without_inbox(before)
        await self._restart([node])
        await asyncio.sleep(fault.hold)
        node.config = before
        await self._restart([node])
        return f"{node.name} for {fault.hold} s"

    async def edit_consumer(self, fault: Fault) -> str:
        """Give a rule's durable consumer a filter that nothing passes, and wait until the rule has its own back.

        If the rule starts again before it has noticed, it cannot know which messages were left out.
        """
        listed = await self._peer.try_api("CONSUMER.LIST.ORDERS") or {}
        durables: list[dict[str, Any]] = [
            each["config"] for each in listed.get("consumers") or () if each["name"].startswith("chaos_")
        ]
        if not durables:
            return "there is none"
        config = drawn(durables, fault.draw)
        name = str(config["durable_name"])
        edit = {"stream_name": "ORDERS", "config": {**config, "filter_subject": _NOTHING}}
        answer = await self._peer.try_api(f"CONSUMER.DURABLE.CREATE.ORDERS.{name}", edit) or {}
        if "error" in answer:
            return f"{name} ({answer['error'].get('description')})"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while await self._filter(name) != config.get("filter_subject"):
                    await asyncio.sleep(0.2)
        return name

    async def _filter(self, consumer: str) -> object:
        info = await self._peer.try_api(f"CONSUMER.INFO.ORDERS.{consumer}") or {}
        return info.get("config", {}).get("filter_subject", _NOTHING)

    async def _restart(self, nodes: Sequence[NativeServer]) -> None:
        await asyncio.gather(*(asyncio.to_thread(node.stop) for node in nodes))
        await self._surroundings.raise_up(*nodes)

    async def _only_holder(self, stream: str) -> NativeServer | None:
        """Wait until one server alone holds a stream; return it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while True:
                    info = await self._peer.try_api(f"STREAM.INFO.{stream}") or {}
                    group = info.get("cluster") or {}
                    if group.get("leader") and not group.get("replicas"):
                        return next(node for node in self._surroundings.nodes if node.name == group["leader"])
                    await asyncio.sleep(0.2)
        return None
