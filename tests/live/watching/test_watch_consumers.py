"""Copies whose consumer at the source was deleted: named, and over when their server has another one."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.live.raw_messages import Collected, OpenPeer, RawPeer
from tests.live.shared_servers import Servers
from tests.live.until import until
from tests.live.watching.test_watch import holds, publish, watched
from tests.live.watching.test_watch_rule import BOTH_ENDS, Watched, watching

COPIES: dict[str, dict[str, Any]] = {"M": {"mirror": {"name": "S"}}, "T": {"sources": [{"name": "S"}]}}


async def delete_consumer(peer: RawPeer, deliveries: Collected) -> None:
    """Delete the consumer of the target's server, which no list shows; its deliveries name it."""
    name = deliveries.messages[-1][1].split(b".")[-6].decode()
    await peer.api(f"CONSUMER.DELETE.S.{name}")


def is_named(here: Watched, target: str) -> bool:
    return any((line["stream"], line["code"]) == (target, "consumer_lost") for line in here.events("watch.stalled"))


def caught_up(here: Watched, target: str, last: int) -> bool:
    copy = here.copy(target)
    return copy["condition"] == "complete" and int(copy["position"]) >= last


def is_named_or_caught_up(here: Watched, target: str, last: int) -> bool:
    return is_named(here, target) or caught_up(here, target, last)


@BOTH_ENDS
async def test_a_consumer_that_is_deleted(version: str, native_server: Servers, raw_peer: OpenPeer) -> None:
    """Servers notice that after a while and create another one; until then they report the lag of before."""
    async with native_server(version) as server:
        peer = await raw_peer(server.url)
        deliveries = {"M": await peer.collect("$JS.M.>"), "T": await peer.collect("$JS.S.>")}
        await peer.create_stream(name="S", subjects=["S.>"], storage="memory")
        await publish(peer, "S", 10)
        for name, copies in COPIES.items():
            await peer.create_stream(name=name, storage="memory", **copies)
        async with watching(server.url, stalled_after=1) as here:
            await here.is_complete(*COPIES)
            last = 10
            # Where this process is slower than the server, it sees nothing: then the next one is deleted.
            while waits := [name for name in COPIES if not is_named(here, name)]:
                for name in waits:
                    await delete_consumer(peer, deliveries[name])
                await publish(peer, "S", 5)
                last += 5
                for name in waits:
                    await until(partial(is_named_or_caught_up, here, name, last))
            await here.is_complete(*COPIES)


async def test_a_consumer_of_the_users_own_that_is_deleted(
    newest_version: str, native_server: Servers, raw_peer: OpenPeer
) -> None:
    """Since 2.14 an entry can name the consumer that it copies through."""
    async with native_server(newest_version) as server:
        peer = await raw_peer(server.url)
        await peer.create_stream(name="S", subjects=["S.>"], storage="memory")
        flow = {"ack_policy": "flow_control", "flow_control": True, "idle_heartbeat": 10**9}
        config = {"durable_name": "c", "deliver_subject": "to.T", **flow}
        await peer.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
        consumer = {"name": "c", "deliver_subject": "to.T"}
        await peer.create_stream(name="T", storage="memory", sources=[{"name": "S", "consumer": consumer}])
        await publish(peer, "S", 10)
        await until(lambda: holds(peer, "T", 10))
        await peer.api("CONSUMER.DELETE.S.c")
        await publish(peer, "S", 5)
        found = (await watched(server.url, expected=1))["T"]
        assert (found["missing"], found["reported_lag"], found["reason"]["code"]) == (5, 0, "consumer_lost")
