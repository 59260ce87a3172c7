"""Native copying through the sidecar: what a server's own mirror or source stores is what it would store natively."""

from __future__ import annotations

from collections.abc import Callable

from nats_bridge.native_servers import NativeServer
from nats_bridge.transforms.header_block import remove
from nats_bridge.transforms.republish import StoredMessage
from nats_bridge.transforms.source_record import HEADER
from tests.live.copied_messages import everything
from tests.live.native_copies import TRANSFORMS, external, pair, publish_oddities
from tests.live.raw_messages import OpenPeer
from tests.live.until import until

Servers = Callable[..., NativeServer]


async def test_a_mirror_is_byte_for_byte_what_a_native_one_with_transforms_is(
    native_server: Servers, raw_peer: OpenPeer, twin_version: str
) -> None:
    async with pair(native_server, raw_peer, twin_version) as two:
        await two.at_source.create_stream(name="ORDERS", subjects=["orders.*", "more.>"])
        mirror = {"name": "ORDERS", "subject_transforms": TRANSFORMS}
        await two.at_source.create_stream(name="NATIVE", mirror=mirror)
        await publish_oddities(two.at_source, 100)
        await two.at_target.create_stream(name="COPY", mirror={"name": "ORDERS", "external": external()})
        async with two.bridged():
            await two.stored("COPY", 100)
            for number in range(3):
                await two.at_source.store(b"orders.late", b"late %d" % number)
            copies = await two.stored("COPY", 103)

        async def native_is_there() -> bool:
            return int((await two.at_source.api("STREAM.INFO.NATIVE"))["state"]["last_seq"]) >= 103

        await until(native_is_there)
        assert copies == await everything(two.at_source, "NATIVE")


async def test_sources_store_what_native_ones_do_but_for_the_records_names(
    native_server: Servers, raw_peer: OpenPeer, twin_version: str
) -> None:
    async with pair(native_server, raw_peer, twin_version) as two:
        await two.at_source.create_stream(name="ORDERS", subjects=["orders.*", "more.>"])
        await publish_oddities(two.at_source, 60)
        native = {"name": "ORDERS", "subject_transforms": TRANSFORMS}
        await two.at_source.create_stream(name="NATIVE", sources=[native])
        await two.at_target.create_stream(name="COPY", sources=[{"name": "ORDERS", "external": external()}])
        held = (await two.at_source.api("STREAM.INFO.ORDERS"))["state"]["messages"]
        async with two.bridged():
            copies = await two.stored("COPY", held)

        async def native_is_there() -> bool:
            return int((await two.at_source.api("STREAM.INFO.NATIVE"))["state"]["last_seq"]) >= held

        await until(native_is_there)
        assert list(map(_bare, copies)) == list(map(_bare, await everything(two.at_source, "NATIVE")))


def _bare(message: StoredMessage) -> tuple[bytes, bytes, bytes, int]:
    return message.subject, remove(message.header_block, HEADER), message.payload, message.sequence
