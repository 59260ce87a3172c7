"""Native copying through the sidecar into streams with three replicas, whose leaders change.

Up to 2.10, sources can store a message again after a change of leaders, natively as well: the new leader reads its
position before it has stored all that the old one proposed, and asks for a message that is stored already, or for the
first one. So what a sidecar has to deliver is what the servers ask for, which the test reads. Since 2.11, a leader asks
twice if a leaf connects before it has asked (0.6 s), so the streams are created when the sidecar is there.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any

import nats.errors
import pytest

from nats_bridge.native_servers import NativeCluster, NativeServer
from nats_bridge.native_servers.native_server import LEAF_LISTENER
from tests.live.answered_load import AnsweredLoad, answered_load
from tests.live.copied_messages import everything
from tests.live.copies import record_of
from tests.live.native_copies import Pair, external
from tests.live.raw_messages import OpenPeer
from tests.live.until import until

COPIES = ("MIRROR", "SOURCES")
CHANGES = 4
PATIENCE = 180.0  # 2.10 pauses longer and longer after requests without an answer


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
async def test_changes_of_the_targets_leaders_lose_and_double_nothing(
    native_server: Callable[..., NativeServer], raw_peer: OpenPeer, twin_version: str
) -> None:
    source = native_server("2.15.3").start()
    async with (
        NativeCluster(twin_version, config=f"leafnodes {{{LEAF_LISTENER}}}") as cluster,
        answered_load(cluster.urls, "none") as target,
    ):
        node = cluster.nodes[0]  # the leaf's; the leaders are there or elsewhere
        two = Pair(source, node, node.leaf_port, await raw_peer(source.url), await raw_peer(node.url))
        await two.at_source.create_stream(name="ORDERS", subjects=["orders.*"])
        published = 0

        async def publish() -> None:
            nonlocal published
            while True:
                await two.at_source.store(b"orders.%d" % (published % 7), b"%d" % published)
                published += 1

        requests = await two.at_target.collect("bridge.orders.API.CONSUMER.CREATE.>")
        async with two.bridged() as sidecar:
            await until(lambda: sidecar.runs[0].ready)
            entry = {"name": "ORDERS", "external": external()}
            await two.at_target.create_stream(name="MIRROR", num_replicas=3, mirror=entry)
            await two.at_target.create_stream(name="SOURCES", num_replicas=3, sources=[entry])
            publishing = asyncio.create_task(publish())
            for _ in range(CHANGES):
                await reach(target, published + 20)
                for stream in COPIES:
                    await change_leader(two, target, stream)
            publishing.cancel()
            await asyncio.gather(publishing, return_exceptions=True)
            last = int((await two.at_source.store(b"orders.last", b"last"))["seq"])
            await reach(target, last)
            sourced = await two.ending_with("SOURCES", b"west.last.new")
            assert sidecar.error is None
        stored = await everything(two.at_source, "ORDERS")
        mirrored = await everything(two.at_target, "MIRROR")
        assert [each.subject for each in mirrored] == [b"west.%b.new" % each.subject[7:] for each in stored]
        places = [[(each.sequence, each.time_ns, each.payload) for each in held] for held in (mirrored, stored)]
        assert places[0] == places[1]

        assert [each.sequence for each in sourced] == list(range(1, len(sourced) + 1))
        sequences = [record_of(message).sequence for message in sourced]
        known, again = 0, set()
        for place, sequence in enumerate(sequences):
            if sequence > known:
                assert sequence == known + 1  # nothing is lost
                known = sequence
            elif sequence != sequences[place - 1] + 1:
                again.add(sequence)
        assert known == last
        assert [(each.subject, each.payload) for each in sourced] == [
            (mirrored[sequence - 1].subject, mirrored[sequence - 1].payload) for sequence in sequences
        ]
        assert again <= {json.loads(payload)["config"].get("opt_start_seq", 1) for *_, payload in requests.messages}
        assert not again or twin_version.startswith(("2.9.", "2.10."))


async def reach(target: AnsweredLoad, last: int) -> None:
    """Wait until both copies have this last sequence, or a later one."""

    infos: list[dict[str, Any]] = []

    async def there() -> bool:
        infos[:] = [await target.api(f"STREAM.INFO.{stream}") for stream in COPIES]
        return all(info["state"]["last_seq"] >= last for info in infos)

    try:
        await until(there, PATIENCE)
    except TimeoutError:
        raise AssertionError(f"{last} was not reached: {infos}") from None


async def change_leader(two: Pair, target: AnsweredLoad, stream: str) -> None:
    """Have a stream's leader step down until another server leads."""

    async def leader() -> str:
        return str((await target.api(f"STREAM.INFO.{stream}"))["cluster"].get("leader") or "")

    before = await leader()

    async def another() -> bool:
        now = await leader()
        if now == before:
            # An answer that is lost is not asked for again: that would be the next leader's.
            with contextlib.suppress(nats.errors.Error):
                await two.at_target.client.request(f"$JS.API.STREAM.LEADER.STEPDOWN.{stream}", b"", timeout=2)
        return bool(now) and now != before

    await until(another, PATIENCE)
