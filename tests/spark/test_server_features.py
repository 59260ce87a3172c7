"""What 2.11 to 2.15 added to streams: read as stored, written as by any publisher, backfilled as by the sidecar."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nats_bridge.settings import Settings
from nats_bridge_spark.errors import reported
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.republish.newer_streams import MIXES, config_of, filled
from tests.live.shared_servers import Name, Servers
from tests.live.sidecars import running, settings_for
from tests.live.until import until
from tests.spark.backfills import backfilled, held
from tests.spark.reading import Read, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERSION = "2.15.3"
BLOCKS = {
    "ttls": b"NATS/1.0\r\nNats-TTL: 1h\r\n\r\n",
    "counters": b"NATS/1.0\r\nNats-Incr: 5\r\n\r\n",
    "schedules": b"NATS/1.0\r\nNats-Schedule: @at 2099-01-01T00:00:00Z\r\nNats-Schedule-Target: %b.due\r\n\r\n",
}
"""What a row of each says, where a header does."""
REFUSALS = {"ttls": "10166", "counters": "10168", "schedules": "10188"}


@pytest.fixture
def version() -> str:
    return VERSION


@pytest.mark.parametrize("mix", MIXES)
async def test_a_row_for_each_stored_message_with_its_headers(
    mix: str, url: str, peer: RawPeer, unique_name: Name
) -> None:
    name = unique_name("read")
    await filled(peer, name, mix, VERSION)
    rows = await Read(url, name, spark_schema("subject", "header_block", "data")).rows()
    assert [(row["subject"].encode(), row["header_block"], row["data"]) for row in rows] == await held(peer, name)


@pytest.mark.parametrize("mix", BLOCKS)
async def test_a_row_is_published_and_the_stream_decides(
    spark: SparkSession, mix: str, url: str, peer: RawPeer, unique_name: Name
) -> None:
    takes, refuses = unique_name("takes"), unique_name("refuses")
    await peer.create_stream(name=takes, subjects=[f"{takes}.>"], **config_of(mix, VERSION))
    await peer.create_stream(name=refuses, subjects=[f"{refuses}.>"])

    def write(stream: str) -> None:
        block = BLOCKS[mix].replace(b"%b", stream.encode())
        frame = spark.createDataFrame(
            [(f"{stream}.a", b"" if mix == "counters" else b"x", block)],
            "subject string, data binary, header_block binary",
        )
        frame.coalesce(1).write.format("jetstream").mode("append").option("servers", url).option(
            "stream", stream
        ).save()

    write(takes)
    ((subject, block, payload),) = await held(peer, takes)
    assert subject == f"{takes}.a".encode()
    assert BLOCKS[mix].split(b"\r\n")[1].replace(b"%b", takes.encode()) in block
    assert payload == (b'{"val":"5"}' if mix == "counters" else b"x")
    with pytest.raises(Exception) as caught:  # noqa: PT011  # whatever Spark makes of it
        write(refuses)
    found = reported(caught.value)
    assert found is not None
    assert REFUSALS[mix] in found.message
    assert await held(peer, refuses) == []


@pytest.mark.parametrize("mix", MIXES)
async def test_a_backfill_makes_the_copies_of_the_sidecar(
    mix: str, url: str, peer: RawPeer, unique_name: Name, native_server: Servers, raw_peer: OpenPeer
) -> None:
    name, target = unique_name("history"), unique_name("copy")
    await filled(peer, name, mix, VERSION)
    count = len(await held(peer, name))

    def settings(west: str) -> Settings:
        rule = {"name": "rule", "to": "west", "kind": "sources", "stream": target, "sources": [{"name": name}]}
        connections = {"default": {"servers": [url]}, "west": {"servers": [west]}}
        return settings_for(url, rule, connections=connections)

    async with native_server(VERSION) as west, native_server(VERSION) as east:
        peers = [await raw_peer(west.url), await raw_peer(east.url)]
        for each in peers:
            await each.create_stream(name=target, subjects=[f"{name}.>"], allow_msg_ttl=True, allow_rollup_hdrs=True)
        await backfilled(settings(west.url))
        async with running(settings(east.url)):

            async def there() -> bool:
                return len(await held(peers[1], target)) == count

            await until(there)
        assert await held(peers[0], target) == await held(peers[1], target)
