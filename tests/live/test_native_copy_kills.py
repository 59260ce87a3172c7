"""Native copies through the sidecar are exact, whatever is killed: the sidecar or one of the two servers."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from nats_bridge.native_servers import NativeServer
from nats_bridge.transforms.dialect import NEWEST
from nats_bridge.transforms.header_block import read, remove
from nats_bridge.transforms.republish import StoredMessage
from nats_bridge.transforms.source_record import HEADER
from nats_bridge.transforms.sourcing import compile_sourcing
from tests.live.copied_messages import everything
from tests.live.native_copies import TRANSFORMS, Pair, external, pair
from tests.live.raw_messages import OpenPeer
from tests.live.sidecar_process import SidecarProcess
from tests.live.tiers import few_or_many

SOURCING = compile_sourcing({"name": "ORDERS", "subject_transforms": TRANSFORMS}, NEWEST)
BURST = 2000


@pytest.mark.unstoppable
@pytest.mark.timeout(900)  # a kill costs 2.10 more than ten seconds
@few_or_many(few=3, many=12)
async def test_kills_at_random_moments_lose_double_and_change_nothing(
    version: str,
    times: int,
    native_server: Callable[..., NativeServer],
    raw_peer: OpenPeer,
    tmp_path: Path,
) -> None:
    chance = random.Random(version)
    deleted: set[int] = set()
    async with pair(native_server, raw_peer, version) as two:
        await two.at_source.create_stream(name="ORDERS", subjects=["orders.*", "more.>", "none"])
        await two.at_target.create_stream(name="COPY", mirror={"name": "ORDERS", "external": external()})
        await two.at_target.create_stream(name="SOURCED", sources=[{"name": "ORDERS", "external": external()}])
        config = tmp_path / "bridge.yaml"
        config.write_text(json.dumps({**two.document(), "log": {"format": "json"}}), "utf-8")
        sidecar = await SidecarProcess.start(config)
        try:
            await sidecar.ready()
            for turn in range(times):
                held = await two.last_sequence("COPY")
                burst = asyncio.create_task(_burst(two, turn, deleted))
                victim = ("sidecar", "target", "source")[turn % 3]
                if victim == "source":
                    await burst  # what a killed server had not stored yet would be lost by it
                await two.reaches("COPY", held + chance.randrange(1, BURST))
                if victim == "sidecar":
                    await sidecar.kill()
                    sidecar = await SidecarProcess.start(config)
                else:
                    await asyncio.to_thread((two.target if victim == "target" else two.source).restart, kill=True)
                    if victim == "target":
                        two.at_target = await raw_peer(two.target.url)
                    else:
                        two.at_source = await raw_peer(two.source.url)
                await burst
            last = int((await two.at_source.store(b"orders.last"))["seq"])
            wanted = [
                (SOURCING.destination(each.subject), each.header_block, each.payload, each.sequence, each.time_ns)
                for each in await everything(two.at_source, "ORDERS")
                if each.subject != b"none"
            ]
            # Whether a message was copied before it was deleted is chance.
            copies = [
                (each.subject, each.header_block, each.payload, each.sequence, each.time_ns)
                for each in await two.stored("COPY", last)
                if each.sequence not in deleted
            ]
            assert copies == wanted
            await two.reaches("SOURCED", len(wanted))
            sourced = [(_source_sequence(each), each) for each in await two.ending_with("SOURCED", b"west.last.new")]
            assert [each.sequence for _, each in sourced] == list(range(1, len(sourced) + 1))
            assert [
                (each.subject, remove(each.header_block, HEADER), each.payload, sequence)
                for sequence, each in sourced
                if sequence not in deleted
            ] == [(subject, block, payload, sequence) for subject, block, payload, sequence, _ in wanted]
            assert await sidecar.stop() == 0
        finally:
            await sidecar.kill()


async def _burst(two: Pair, turn: int, deleted: set[int]) -> None:
    """Messages of every kind, those that no filter selects included, and some deleted again."""
    peer = two.at_source
    for number in range(BURST - 1):
        block = b"NATS/1.0\r\nA: \xff %d\r\nNats-Msg-Id: %d-%d\r\n\r\n" % (number, turn, number) if number % 3 else b""
        subject = (b"orders.%d" % (number % 7), b"more.a.%d" % (number % 3), b"none")[number % 5 % 3]
        peer.publish(subject, b"%d %d" % (turn, number), block)
    last = int((await peer.store(b"orders.end"))["seq"])
    for sequence in range(last - 50, last - 20, 7):
        deleted.add(sequence)
        await peer.api("STREAM.MSG.DELETE.ORDERS", {"seq": sequence})


def _source_sequence(message: StoredMessage) -> int:
    return int((read(message.header_block, HEADER) or b"").split(b" ")[1])
