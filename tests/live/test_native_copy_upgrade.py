"""The walk of docs/native-copying.md: native copies on 2.9 through the sidecar, an upgrade in place, and without it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from nats_bridge.native_servers import NativeServer
from nats_bridge.native_servers.native_server import HOST, LEAF_LISTENER
from nats_bridge.transforms.header_block import remove
from nats_bridge.transforms.republish import StoredMessage
from nats_bridge.transforms.source_record import HEADER, first_record
from tests.live.copied_messages import everything
from tests.live.native_copies import TRANSFORMS, external, pair, publish_oddities
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.stream_backup import backup, restore
from tests.live.until import until

NATIVE = {"name": "ORDERS", "subject_transforms": TRANSFORMS}


async def test_after_an_upgrade_the_server_copies_on_without_the_sidecar(
    native_server: Callable[..., NativeServer], raw_peer: OpenPeer
) -> None:
    hub = f"jetstream {{domain: hub}}\nleafnodes {{{LEAF_LISTENER}}}"
    async with pair(native_server, raw_peer, "2.9.10", source_config=hub) as two:
        source = two.at_source
        await source.create_stream(name="ORDERS", subjects=["orders.*", "more.>"])
        await publish_oddities(source, 40)
        through = {"name": "ORDERS", "external": external()}
        await two.at_target.create_stream(name="COPY", mirror=through)
        await two.at_target.create_stream(name="SOURCED", sources=[through])
        async with two.bridged():
            await two.reaches("COPY", 40)
            await two.ending_with("SOURCED", (await everything(two.at_target, "COPY"))[-1].subject)
        for number in range(20):  # while the sidecar is stopped
            await source.store(b"orders.%d" % (number % 7), b"again %d" % number, b"NATS/1.0\r\nA: \xff\r\n\r\n")

        two.target.stop()
        two.target.config = (
            f"jetstream {{domain: edge}}\n"
            f'leafnodes {{{LEAF_LISTENER}, remotes: [{{url: "nats-leaf://{HOST}:{two.source.leaf_port}"}}]}}'
        )
        await asyncio.to_thread(two.target.upgrade, "2.15.3")
        two.at_target = await raw_peer(two.target.url)
        at_home = {**NATIVE, "external": {"api": "$JS.hub.API"}}

        # Sources: an update, from the message behind the last one copied.
        info = await two.at_target.api("STREAM.INFO.SOURCED")
        record = first_record((await everything(two.at_target, "SOURCED"))[-1].header_block)
        assert record is not None
        sources = [{**at_home, "opt_start_seq": record.sequence + 1}]
        answer = await two.at_target.api("STREAM.UPDATE.SOURCED", {**info["config"], "sources": sources})
        assert "error" not in answer, answer

        # A mirror's configuration cannot change: a backup, and its restoration with another one.
        kept = await backup(two.at_target, "COPY")
        assert (await two.at_target.api("STREAM.DELETE.COPY"))["success"]
        await restore(two.at_target, {**kept.config, "mirror": at_home}, kept)

        await copies_on(source, two.at_target, 1)
        await asyncio.to_thread(two.target.restart, kill=True)
        two.at_target = await raw_peer(two.target.url)
        await copies_on(source, two.at_target, 2)

        await source.create_stream(name="NATIVE", mirror=NATIVE)
        await until(lambda: holds(source, "NATIVE", b"end 2"))
        wanted = await everything(source, "NATIVE")
        assert await everything(two.at_target, "COPY") == wanted
        sourced = await everything(two.at_target, "SOURCED")
        assert list(map(bare, sourced)) == list(map(bare, wanted))


async def copies_on(source: RawPeer, target: RawPeer, turn: int) -> None:
    """Store more, and wait until both copies have it."""
    for number in range(10):
        await source.store(b"more.%d" % number, b"%d %d" % (turn, number))
    await source.store(b"orders.end", b"end %d" % turn)
    for stream in ("COPY", "SOURCED"):
        await until(partial(holds, target, stream, b"end %d" % turn))


async def holds(peer: RawPeer, stream: str, payload: bytes) -> bool:
    """Whether a stream has a message with this payload."""
    return any(message.payload == payload for message in await everything(peer, stream))


def bare(message: StoredMessage) -> tuple[bytes, bytes, bytes]:
    return message.subject, remove(message.header_block, HEADER), message.payload
