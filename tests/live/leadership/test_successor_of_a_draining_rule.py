"""An at_most_once rule that drains while another process has its consumer already: nothing twice, nothing lost."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest

from nats_bridge.app.sidecar import Sidecar
from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.ordered_reader import OrderedReader
from nats_bridge.settings import Settings
from tests.live.handoff.handoffs import handoff
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecar_process import Load, Seen
from tests.live.sidecars import running, settings_for
from tests.live.tiers import with_all
from tests.live.until import until

VERSIONS = ["2.9.10", *with_all("2.10.27"), "2.15.3"]


@dataclass
class SlowDrain:
    """A sidecar that stops slowly, as on a busy machine.

    Attributes:
        drains: it has unsubscribed, and handled what had arrived.
        continues: it may continue.
        loses: what arrives is lost, as with a connection that breaks.
    """

    peer: RawPeer
    rule: dict[str, Any]
    settings: Settings
    seen: Seen
    load: Load
    drains: asyncio.Event
    continues: asyncio.Event
    loses: bool = False

    @classmethod
    async def of(cls, url: str, stream: str, peer: RawPeer, patch: pytest.MonkeyPatch) -> Self:
        await peer.create_stream(name=stream, subjects=[f"{stream}.>"])
        seen = await Seen.of(peer, f"out{stream}.>")
        republish = {"src": f"{stream}.>", "dest": f"out{stream}.>"}
        rule = {"name": "rule", "kind": "republish", "stream": stream, "republish": republish, "start": "first"}
        load, drains, continues = Load(peer, stream), asyncio.Event(), asyncio.Event()
        slow = cls(peer, rule, settings_for(url, rule), seen, load, drains, continues)
        rest, arrive = OrderedReader._hand_on_sent, OrderedReader._on_batch

        async def slowly(reader: OrderedReader) -> None:
            if not drains.is_set():
                drains.set()
                await continues.wait()
            await rest(reader)

        def arrives(reader: OrderedReader, batch: list[Delivered]) -> None:
            if not slow.loses:
                arrive(reader, batch)

        patch.setattr(OrderedReader, "_hand_on_sent", slowly)
        patch.setattr(OrderedReader, "_on_batch", arrives)
        return slow

    async def delivered(self, sequence: int) -> None:
        """Wait until the server has sent everything up to a sequence."""
        stream = self.rule["stream"]

        async def is_delivered() -> bool:
            info = await self.peer.api(f"CONSUMER.INFO.{stream}.nats-bridge_rule")
            return bool(info["delivered"]["stream_seq"] == sequence)

        await until(is_delivered)


@pytest.mark.parametrize("lost", [0, 10])
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_successor_receives_while_the_rule_drains(
    version: str,
    lost: int,
    servers: SharedServers,
    unique_name: Name,
    raw_peer: OpenPeer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As with a rolling update. What was sent and did not arrive is the first one's to publish."""
    url = await servers.url(version)
    peer = await raw_peer(url)
    slow = await SlowDrain.of(url, unique_name("drained"), peer, monkeypatch)
    first = Sidecar(slow.settings)
    await first.start()
    await slow.load.burst(20)
    await slow.seen.until_sequence(20)
    if lost:
        slow.loses = True
        await slow.load.burst(lost)
        await slow.delivered(20 + lost)
    stopping = asyncio.create_task(first.stop())
    await slow.drains.wait()
    slow.loses = False
    await slow.load.burst(20)
    async with running(slow.settings):
        await slow.load.burst(20)
        await slow.seen.until_sequence(60 + lost)
        slow.continues.set()
        await stopping
        await slow.load.burst(20)
        await slow.seen.until_sequence(80 + lost)
    async with running(slow.settings):  # the description does not grow
        await slow.load.burst(20)
        await slow.seen.until_sequence(100 + lost)
        info = await peer.api(f"CONSUMER.INFO.{slow.rule['stream']}.nats-bridge_rule")
        assert info["config"]["description"].count("(from") == 1
    await peer.flushed()
    assert sorted(slow.seen.sequences) == list(range(1, 101 + lost))


@pytest.mark.parametrize("version", VERSIONS[1:])
async def test_a_rule_is_handed_over_while_it_drains(
    version: str,
    servers: SharedServers,
    unique_name: Name,
    raw_peer: OpenPeer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    url = await servers.url(version)
    peer = await raw_peer(url)
    slow = await SlowDrain.of(url, unique_name("handed"), peer, monkeypatch)
    first = Sidecar(slow.settings)
    await first.start()
    await slow.load.burst(20)
    await slow.seen.until_sequence(20)
    stopping = asyncio.create_task(first.stop())
    await slow.drains.wait()
    await slow.load.burst(20)
    config = tmp_path / "bridge.yaml"
    document = {"connections": {"default": {"servers": [url]}}, "http": {"listen": ""}, "rules": [slow.rule]}
    config.write_text(json.dumps(document), "utf-8")
    ran = await handoff(config, "rule", "--apply")
    assert ran.code == 0, ran.err
    await slow.load.burst(20)
    slow.continues.set()
    await stopping
    await slow.seen.until_sequence(60)
    await peer.flushed()
    assert slow.seen.sequences == list(range(1, 61))
